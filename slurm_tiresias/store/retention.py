"""How long the ledger keeps jobs that have ended.

It keeps what policies still need of older ones: samples of their service (``Ledger.samples``), and
every job whose service may count for a user's budget or be inherited by later jobs.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from slurm_tiresias.core.features import charge, losses
from slurm_tiresias.errors import LedgerError, TiresiasError, UsageError
from slurm_tiresias.settings import Config
from slurm_tiresias.store.ledger import PRUNED_BEFORE, Ledger
from slurm_tiresias.store.records import Pruned
from slurm_tiresias.store.tables import EVENTS, JOBS, TABLES

log = logging.getLogger("tiresias-slurm")

DAY_S = 86_400.0
JOBS_AT_A_TIME = 200
"""Takes about 10 ms, so that the controller and readers of the ledger hardly wait."""
JOBS_AT_A_COMMAND = 5_000
FIRST_AFTER_S = 600.0
AGAIN_AFTER_S = 3600.0
CLOCK_TRUSTED_AFTER_S = DAY_S
"""A clock that is wrong by years must not empty the ledger before an administrator notices."""
DOUBTED_UNTIL = "clock_doubted_until_s"
"""The fact that stores until when nothing is pruned after a step of the clock, by that clock."""


_PRUNABLE = (
    f"{JOBS.pruned_by} < :before_s AND NOT EXISTS "
    "(SELECT 1 FROM runs i WHERE i.key = jobs.key AND i.confirmed = 0)"
)


def newest_s(ledger: Ledger) -> float | None:
    """Return the newest time of an event or of the end of a job; None if there is none."""
    last: float | None = ledger.read_one(
        "SELECT MAX(at_s) FROM (SELECT MAX(ended_s) AS at_s FROM jobs UNION ALL "
        "SELECT at_s FROM (SELECT at_s FROM events ORDER BY number DESC LIMIT 1))"
    )
    return last


def prunable(ledger: Ledger, before_s: float) -> Pruned:
    """Count what repeated calls of ``prune`` would remove."""
    old = f"(SELECT key FROM jobs WHERE {_PRUNABLE})"
    conditions = {
        "jobs": _PRUNABLE,
        "runs": f"key IN {old}",
        "preemptions": f"key IN {old}",
        "events": f"{EVENTS.pruned_by} < :before_s",
    }
    return Pruned(
        **{
            table: ledger.read_one(
                f"SELECT COUNT(*) FROM {table} WHERE {condition}", {"before_s": before_s}
            )
            for table, condition in conditions.items()
        }
    )


def prune(ledger: Ledger, before_s: float, at_most: int, kept: Collection[str] = ()) -> Pruned:
    """Remove the oldest jobs that ended before a time, and the oldest events before it.

    Runs one short transaction with ``at_most`` jobs and as many events: call it again until
    nothing is left. Samples of the jobs' service stay, and so do jobs that accounting has not
    confirmed and those in ``kept``.
    """
    oldest = f"SELECT key FROM jobs WHERE {_PRUNABLE} ORDER BY {JOBS.pruned_by} LIMIT :at_most"
    old_events = (
        f"DELETE FROM events WHERE number IN (SELECT number FROM (SELECT number, "
        f"{EVENTS.pruned_by} AS at_s FROM events ORDER BY number LIMIT :at_most) "
        "WHERE at_s < :before_s)"
    )
    with ledger.transaction():
        values = {"before_s": before_s, "at_most": at_most + len(kept)}
        found = [key for (key,) in ledger.read(oldest, values) if key not in kept]
        keys = json.dumps(found[:at_most])
        ledger.samples.keep_of(keys)
        in_keys = "key IN (SELECT value FROM json_each(?))"
        removed = {
            table.name: ledger.change(f"DELETE FROM {table.name} WHERE {in_keys}", (keys,))
            for table in TABLES
            if table.is_of_jobs
        }
        events = ledger.change(old_events, {"before_s": before_s, "at_most": at_most})
        if removed["jobs"] and before_s > ledger.pruned_before_s:
            ledger.set_value(PRUNED_BEFORE, repr(before_s))
    return Pruned(removed["jobs"], removed["runs"], removed["preemptions"], events)


def latest_cutoff_s(config: Config, ledger: Ledger, now_s: float) -> float:
    """Return the time since when ended jobs may still count in decisions."""
    cutoff_s = now_s - losses.BUDGET_WINDOW_S
    if config.policy.charge == charge.BY_JOB:
        return cutoff_s
    return min(cutoff_s, charged_since_s(ledger, now_s))


def charged_since_s(ledger: Ledger, now_s: float) -> float:
    """Return the time since when ended runs are charged to live jobs: after a restart, what these
    inherited is computed again."""
    first_s = min(now_s, ledger.jobs.first_start_of_live_s() or now_s)
    return first_s - charge.CHARGE_WINDOW_S


def configured_cutoff_s(config: Config, now_s: float) -> float | None:
    """Return the time before which ended jobs are not kept; None if all are kept forever."""
    days = config.controller.keep_ended_jobs_days
    return now_s - days * DAY_S if days else None


class Retention:
    """Prunes the ledger step by step whenever the controller is idle."""

    def __init__(self, ledger: Ledger, config: Config, in_use: Callable[[], Sequence[str]]) -> None:
        """``in_use`` returns ended jobs that the controller still works with."""
        self._ledger = ledger
        self._config = config
        self._in_use = in_use
        self._next_s = time.monotonic() + FIRST_AFTER_S
        self._doubted_until_s = float(ledger.value(DOUBTED_UNTIL) or "0.0")
        self._newest_s = newest_s(ledger)
        """The newest time in the ledger at the start; None once it has been compared."""
        self._pruned = 0

    def put_off(self, now_s: float) -> None:
        """Postpone pruning, also by later controllers: Slurm's clock was set and may be wrong."""
        self._doubted_until_s = now_s + CLOCK_TRUSTED_AFTER_S
        self._ledger.set_value(DOUBTED_UNTIL, repr(self._doubted_until_s))

    def _is_clock_doubted(self, now_s: float) -> bool:
        newest_s, self._newest_s = self._newest_s, None
        if newest_s is not None and now_s - newest_s > CLOCK_TRUSTED_AFTER_S:
            # It may have been set while no controller ran.
            self.put_off(now_s)
        return now_s < self._doubted_until_s <= now_s + CLOCK_TRUSTED_AFTER_S

    def prune_some(self, now_s: float) -> None:
        """Remove some of the jobs that ended too long ago, if pruning is due.

        ``now_s`` is by Slurm's clock. Errors are logged.
        """
        cutoff_s = configured_cutoff_s(self._config, now_s)
        try:
            doubted = self._is_clock_doubted(now_s)
            if cutoff_s is None or doubted or time.monotonic() < self._next_s:
                return
            before_s = min(cutoff_s, latest_cutoff_s(self._config, self._ledger, now_s))
            pruned = prune(self._ledger, before_s, JOBS_AT_A_TIME, self._in_use())
        except TiresiasError as error:
            log.warning("the ledger is not pruned for now: %s", error)
            self._next_s = time.monotonic() + AGAIN_AFTER_S
            return
        self._pruned += pruned.jobs
        if pruned.jobs < JOBS_AT_A_TIME and pruned.events < JOBS_AT_A_TIME:
            self._next_s = time.monotonic() + AGAIN_AFTER_S
            if self._pruned:
                log.info("pruned %d jobs that ended long ago from the ledger", self._pruned)
                self._pruned = 0


@dataclass(frozen=True, slots=True)
class Pruning:
    """What a command removed, or would remove: jobs that ended before ``before_s``."""

    ledger: str
    before_s: float
    dry_run: bool
    pruned: Pruned
    bytes_before: int
    bytes_after: int


def prune_all(ledger: Ledger, config: Config, before_s: float | None, *, dry_run: bool) -> Pruning:
    """Remove step by step all jobs that ended before a time and no longer count.

    ``before_s`` None means the retention time of the configuration; raises ``UsageError`` if that
    is unlimited.
    """
    now_s = time.time()
    wanted_s = configured_cutoff_s(config, now_s) if before_s is None else before_s
    if wanted_s is None:
        raise UsageError(
            "controller.keep_ended_jobs_days is 0: all jobs are kept forever",
            "Say which to remove, with --before",
        )
    cutoff_s = min(wanted_s, latest_cutoff_s(config, ledger, now_s))
    bytes_before = ledger.path.stat().st_size
    total = prunable(ledger, cutoff_s) if dry_run else _pruned(ledger, cutoff_s)
    return Pruning(
        ledger=str(ledger.path),
        before_s=cutoff_s,
        dry_run=dry_run,
        pruned=total,
        bytes_before=bytes_before,
        bytes_after=ledger.path.stat().st_size,
    )


def _pruned(ledger: Ledger, cutoff_s: float) -> Pruned:
    total = Pruned()
    while some := prune(ledger, cutoff_s, JOBS_AT_A_COMMAND):
        total += some
    try:
        ledger.give_back_room()
    except LedgerError as error:
        log.warning("the file keeps its size; new jobs will fill it: %s", error)
    return total
