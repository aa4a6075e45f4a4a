"""The clock of this host that cannot be set."""

from __future__ import annotations

import time


def steady_s() -> float:
    """Return the seconds since the host was booted, also those in which it was suspended.

    ``time.monotonic`` stands still meanwhile, so a suspension would look like a set wall clock.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)
