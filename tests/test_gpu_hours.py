"""How GPU time is shown to people."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from slurm_tiresias.gpu_hours import exact_gpu_hours, gpu_hours, hours

WRITTEN = {
    0.0: "0",
    1.0: "0.00",
    36.0: "0.01",
    900.0: "0.25",
    3599.0: "0.99",
    3600.0: "1.0",
    5400.0: "1.5",
    35_999.0: "9.9",
    36_000.0: "10",
    90_000.0: "25",
    4_442_400.0: "1,234",
    -5400.0: "-1.5",
    -1.0: "0.00",
    math.inf: "?",
}


def test_gpu_time_is_written_in_gpu_hours_with_two_digits_or_more() -> None:
    assert {gpu_s: hours(gpu_s) for gpu_s in WRITTEN} == WRITTEN
    assert gpu_hours(90_000.0) == "25 GPU-h"


@given(st.floats(0, 1e9))
def test_gpu_time_is_never_overstated_and_off_by_less_than_its_last_digit(gpu_s: float) -> None:
    written = hours(gpu_s)
    last_digit = 10.0 ** -len(written.partition(".")[2])
    missing = gpu_s / 3600 - float(written.replace(",", ""))
    assert -1e-6 <= missing < last_digit + 1e-6


def test_limits_are_written_exactly() -> None:
    limits = (0.5, 36, 3200, 3600, 5400, 18_000, 100_000, 2_250_000, 36_000_000)
    assert [exact_gpu_hours(limit) for limit in limits] == [
        *("0.5 GPU-s", "0.01 GPU-h", "3200 GPU-s", "1 GPU-h", "1.5 GPU-h", "5 GPU-h"),
        *("100000 GPU-s", "625 GPU-h", "10,000 GPU-h"),
    ]


@given(st.integers(1, 10**7))
def test_limits_keep_every_second(gpu_s: int) -> None:
    number, unit = exact_gpu_hours(gpu_s).replace(",", "").split()
    assert round(float(number) * {"GPU-h": 3600, "GPU-s": 1}[unit], 6) == gpu_s
