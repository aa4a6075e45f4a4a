"""When the next cycle runs. Pure: no clock."""

from __future__ import annotations

MOST_LOAD = 0.25
"""The share of time that cycles may use if they follow sooner than the interval. A cycle reads all
jobs and publishes a new state, and users decide how often there is a reason for one: a thousand
jobs that end at once send a thousand nudges, and a job that Slurm does not start is looked at again
until its nomination expires."""

LEAST_GAP_S = 0.2
"""Nudges start cycles at least this far apart."""

LOOK_AGAIN_S = (0.05, 0.5)
"""The first and the usual pause between cycles while a start or preemption is under way. After a
write slurmctld tries the queue once a second (``_slurmctld_background`` in controller.c), at the
end of an epilog at once. So the first pause is short, later ones grow, and a preemptor waits about
half a second for its try, whatever the controller does."""

LOOK_AGAIN_SHARE = 0.1
"""What has been under way for long is looked at after this share of the time since the last write.
"""


class Pace:
    """The time of the next cycle; all times are of one monotonic clock.

    A cycle is due one interval after the last one began; on a nudge, or while a start or preemption
    is under way, it is brought forward. Cycles are not brought forward while they have used
    ``MOST_LOAD`` of the time, counted over the interval before at least, so that a few in a row
    after a quiet time are not put off.
    """

    def __init__(self, interval_s: float, now_s: float) -> None:
        """The first cycle is due now."""
        self._interval_s = interval_s
        self.next_s = self._began_s = self._ended_s = self._moved_s = now_s
        self._pause_s = LOOK_AGAIN_S[0]
        self._used_s = 0.0
        """The time that cycles have used, less ``MOST_LOAD`` of the time that has passed."""

    def begin(self, now_s: float) -> None:
        """Note that a cycle begins."""
        self._began_s = now_s

    def end(self, now_s: float, *, wrote: bool, unsettled: bool) -> None:
        """Note that the cycle is over, and schedule the next one.

        ``wrote``: it wrote to Slurm. ``unsettled``: a start or preemption is under way.
        """
        took_s = now_s - self._began_s
        passed_s = now_s - self._ended_s
        self._used_s = max(0.0, self._used_s - MOST_LOAD * passed_s) + took_s
        self._ended_s = now_s
        self.next_s = max(now_s, self._began_s + self._interval_s)
        first_s, usual_s = LOOK_AGAIN_S
        if wrote or not unsettled:
            self._moved_s, self._pause_s = now_s, first_s
        else:
            longest_s = max(usual_s, LOOK_AGAIN_SHARE * (now_s - self._moved_s))
            self._pause_s = min(2 * self._pause_s, longest_s)
        if unsettled:
            self._bring_forward(now_s + max(self._pause_s, took_s))

    def fail(self, now_s: float, pause_s: float) -> None:
        """Schedule the next try after a cycle that failed."""
        self.next_s = now_s + pause_s

    def nudge(self, at_s: float, least_gap_s: float = LEAST_GAP_S) -> None:
        """Run the next cycle at this time, or as soon afterwards as it may be brought forward."""
        self._bring_forward(max(at_s, self._began_s + least_gap_s))

    def _bring_forward(self, to_s: float) -> None:
        too_much_s = max(0.0, self._used_s - MOST_LOAD * self._interval_s)
        self.next_s = min(self.next_s, max(to_s, self._ended_s + too_much_s / MOST_LOAD))
