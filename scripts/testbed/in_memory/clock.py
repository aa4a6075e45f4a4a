"""A clock that only moves when told to."""

from __future__ import annotations

import math

DIGITS = 6
"""Times are rounded to microseconds, so that sums of small steps hit exact seconds."""


class Clock:
    """A monotonic clock ``steady_s``, and slurmctld's, which is ``offset_s`` ahead and may be set.

    Slurm's times are whole seconds (``whole_s``).
    """

    def __init__(self, epoch_s: float = 1_700_000_000.0, steady_s: float = 1_000.0) -> None:
        self.steady_s = round(steady_s, DIGITS)
        self.offset_s = round(epoch_s - steady_s, DIGITS)

    def move_to(self, steady_s: float) -> None:
        """Advance the steady clock; it never goes backwards."""
        self.steady_s = max(self.steady_s, round(steady_s, DIGITS))

    def in_s(self, seconds: float) -> float:
        """Return the steady clock's time this many seconds from now."""
        return round(self.steady_s + seconds, DIGITS)

    def set_by(self, seconds: float) -> None:
        """Set slurmctld's clock by some seconds."""
        self.offset_s = round(self.offset_s + seconds, DIGITS)

    @property
    def now_s(self) -> float:
        """slurmctld's clock, in seconds since the Unix epoch."""
        return round(self.steady_s + self.offset_s, DIGITS)

    @property
    def whole_s(self) -> float:
        return float(math.floor(self.now_s))

    def steady_at(self, slurm_s: float) -> float:
        """Convert a time of slurmctld's clock, as set now, to the steady clock."""
        return round(slurm_s - self.offset_s, DIGITS)
