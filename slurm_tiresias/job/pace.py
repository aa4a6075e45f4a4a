"""How often a job may update its comment: seldom, and less often the slower slurmctld is."""

from __future__ import annotations

import random
from dataclasses import dataclass

from slurm_tiresias.job.record import DONE, LEAVING, Record

MOST_UPDATES = 40
"""Maximum number of updates in one run of a job, however long it is and however many programs it
starts."""

RESERVED_UPDATES = 4
"""The part of these that is reserved for programs that exit or have finished."""

FIRST_AFTER_S = 60.0
"""A shorter run sends no updates at all; this is also the shortest regular interval."""

GROWTH = 0.35
"""An interval is this part of the time run so far: 24 updates in a day, 35 in a month."""

JITTER = 0.2
"""Each interval is longer or shorter by up to this part of it, so that jobs that were started
together do not update together."""

AFTER_SAVE = 0.7
"""After a saved checkpoint, the next update is due after this part of the interval."""

MOST_SLOWNESS = 64

# Not the program's random numbers, which are the same in each of its runs.
_chance = random.SystemRandom()


@dataclass
class Pace:
    """When updates may be sent. All times are of one monotonic clock.

    ``slowness`` multiplies the intervals: it doubles with each update to which slurmctld answers
    late or with an error, and is halved by each other one.
    """

    began_s: float
    last_s: float
    interval_s: float
    updates: int = 0
    slowness: int = 1

    @classmethod
    def begin(cls, now_s: float) -> Pace:
        """The pace of a run that begins now."""
        return cls(now_s, now_s, FIRST_AFTER_S * _chance.uniform(1.0, 1.0 + 2 * JITTER))

    def is_due(self, now_s: float, record: Record, sent: Record | None) -> bool:
        """Whether to send a record now; ``sent`` is the last one that was sent."""
        if self.updates >= MOST_UPDATES or now_s - self.began_s < FIRST_AFTER_S:
            return False
        if record.state in (LEAVING, DONE) and (sent is None or sent.state != record.state):
            return True
        busy_s, known_s = record.busy_until_s or 0.0, (sent and sent.busy_until_s) or 0.0
        if busy_s > known_s and self.updates < MOST_UPDATES // 2:
            return now_s >= self.last_s + FIRST_AFTER_S
        has_saved = record.saved_s is not None and (sent is None or sent.saved_s != record.saved_s)
        wait_s = self.interval_s * self.slowness * (AFTER_SAVE if has_saved else 1.0)
        return self.updates < MOST_UPDATES - RESERVED_UPDATES and now_s >= self.last_s + wait_s

    def count(self, now_s: float) -> None:
        """Record that an update is sent now."""
        self.updates += 1
        self.last_s = now_s
        usual_s = max(FIRST_AFTER_S, GROWTH * (now_s - self.began_s))
        self.interval_s = usual_s * _chance.uniform(1.0 - JITTER, 1.0 + JITTER)

    def answered(self, well: bool) -> None:
        """Record how quickly slurmctld answered the last update."""
        if well:
            self.slowness = max(1, self.slowness // 2)
        else:
            self.slowness = min(MOST_SLOWNESS, 2 * self.slowness)
