"""How long tests wait for what should happen soon. A test that passes does not wait that long."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_S = 360.0 if os.environ.get("CI") else 180.0
"""Slurm makes a requeued job wait for two minutes. Build servers may be slow and busy."""


Value = TypeVar("Value")


def wait_until(
    condition: Callable[[], Value],
    what: str = "it comes about",
    timeout_s: float = PATIENCE_S,
    longest_pause_s: float = 0.02,
) -> Value:
    """Wait until the condition is true, and return its value; raise ``AssertionError`` if it is not
    in time."""
    give_up_s, pause_s = time.monotonic() + timeout_s, 0.02
    while not (value := condition()):
        assert time.monotonic() < give_up_s, f"not within {timeout_s:g} s: {what}"
        time.sleep(pause_s)
        pause_s = min(longest_pause_s, 1.2 * pause_s)
    return value
