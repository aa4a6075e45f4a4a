"""A clock that is moved by hand."""

from __future__ import annotations

import math

DIGITS = 6
"""Times are whole microseconds: a sum of many small steps meets the second that it is to meet."""


class Clock:
    """``steady_s`` only ever grows; slurmctld's clock is ``offset_s`` ahead of it, and may be set.

    Slurm's times are whole seconds, as ``whole_s`` gives them.
    """

    def __init__(self, epoch_s: float = 1_700_000_000.0, steady_s: float = 1_000.0) -> None:
        self.steady_s = round(steady_s, DIGITS)
        self.offset_s = round(epoch_s - steady_s, DIGITS)

    def move_to(self, steady_s: float) -> None:
        """Time passes; never backwards."""
        self.steady_s = max(self.steady_s, round(steady_s, DIGITS))

    def in_s(self, seconds: float) -> float:
        """The steady clock so many seconds from now."""
        return round(self.steady_s + seconds, DIGITS)

    def set_by(self, seconds: float) -> None:
        """slurmctld's clock is set."""
        self.offset_s = round(self.offset_s + seconds, DIGITS)

    @property
    def now_s(self) -> float:
        """What slurmctld's clock shows, in seconds since the Unix epoch."""
        return round(self.steady_s + self.offset_s, DIGITS)

    @property
    def whole_s(self) -> float:
        return float(math.floor(self.now_s))

    def steady_at(self, slurm_s: float) -> float:
        """When slurmctld's clock, as it is set now, will show this time."""
        return round(slurm_s - self.offset_s, DIGITS)
