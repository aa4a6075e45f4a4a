"""Limits the events that each user can cause at will, which would displace all others' events.

For each kind, a user has ``MOST_AT_ONCE`` events at once and one more each minute; further ones are
counted and reported as one event. The kinds that reports count (preempted, would, idle-requeued,
hung-requeued) are never folded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from slurm_tiresias.store.records import EventRecord

AT_WILL = frozenset(
    {
        *("repaired", "unpinned", "failed", "backed-off", "requeued", "list-refused"),
        *("signal-refused", "no-net-progress", "admitted"),
        *("gpus-idle", "idle-signalled", "idle-spared"),
        *("restarted", "not-restarted"),
        *("hung", "hung-false", "hung-dumped", "hung-signalled", "hung-spared"),
    }
)
"""Kinds that users cause by lowering their jobs' priority, moving jobs out of a band, requeueing
them, making Slurm refuse writes, sending false reports, holding jobs at a prompt, leaving their
GPUs idle, making no steps, or failing."""

MOST_AT_ONCE = 20
ONE_MORE_AFTER_S = 60.0


@dataclass(slots=True)
class _Account:
    """How many more events of one kind a user may cause, and how many have been folded."""

    left: float
    at_s: float
    folded: int = 0
    last_job: str = ""

    def refill(self, at_s: float) -> None:
        # The clock may have been set back.
        passed_s = max(0.0, at_s - self.at_s)
        self.left = min(MOST_AT_ONCE, self.left + passed_s / ONE_MORE_AFTER_S)
        self.at_s = at_s


class EventFolder:
    """Folds the events of a user beyond the limit into one event."""

    def __init__(self) -> None:
        self._accounts: dict[tuple[str, str], _Account] = {}
        """By user and kind."""

    def takes(self, at_s: float, kind: str, user: str, job_id: str) -> bool:
        """Whether this event is folded, and thus not recorded by itself."""
        if kind not in AT_WILL:
            return False
        account = self._accounts.setdefault((user, kind), _Account(MOST_AT_ONCE, at_s))
        account.refill(at_s)
        # The last one is kept for the event that counts the folded ones.
        if account.left >= 2 and not account.folded:
            account.left -= 1
            return False
        account.folded += 1
        account.last_job = job_id
        return True

    def folded(self, now_s: float) -> Iterator[EventRecord]:
        """Yield one event for each user and kind with folded events whose limit allows it again."""
        for (_, kind), account in self._accounts.items():
            if not account.folded:
                continue
            account.refill(now_s)
            if account.left >= 1:
                times = "time" if account.folded == 1 else "times"
                text = f"the same happened to this user's jobs {account.folded:,} more {times}"
                account.left -= 1
                yield EventRecord(account.at_s, kind, account.last_job, "", text)
                account.folded = 0
