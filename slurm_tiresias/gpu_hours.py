"""Format GPU time in GPU-hours, because ``1d01h`` would read as a duration."""

from __future__ import annotations

import math

UNIT = "GPU-h"

_HOUR_GPU_S = 3600
_ROUNDING_ERROR = 1e-6


def hours(gpu_s: float) -> str:
    """Format GPU-seconds as GPU-hours without the unit: ``0.25``, ``1.5``, ``25``, ``1,234``.

    Rounded down, like durations, so that a job shown at its tier's limit has really reached it.
    """
    if not math.isfinite(gpu_s):
        return "?"
    if not gpu_s:
        return "0"
    size = abs(gpu_s)
    decimals = 0 if size >= 10 * _HOUR_GPU_S else 1 if size >= _HOUR_GPU_S else 2
    units = int(size * 10**decimals / _HOUR_GPU_S + _ROUNDING_ERROR)
    sign = "-" if gpu_s < 0 and units else ""
    return f"{sign}{units / 10**decimals:,.{decimals}f}"


def gpu_hours(gpu_s: float) -> str:
    """Format GPU-seconds as in ``25 GPU-h``."""
    return f"{hours(gpu_s)} {UNIT}"


def exact_gpu_hours(gpu_s: float) -> str:
    """Format a limit exactly: ``1.5 GPU-h``, or ``3200 GPU-s`` if the hours are not round."""
    value = gpu_s / _HOUR_GPU_S
    round_ = round(value, 2)
    return f"{round_:,.12g} {UNIT}" if value and round_ == value else f"{gpu_s:.12g} GPU-s"
