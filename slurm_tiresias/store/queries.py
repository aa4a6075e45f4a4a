"""What is asked of the ledger's tables, one class for each subject."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

from slurm_tiresias.core.features.charge import EndedRun, payer_of
from slurm_tiresias.core.features.losses import Loss, losses_of
from slurm_tiresias.model import JobAccount, Lane, ProgramHabit
from slurm_tiresias.store.records import (
    LOST_PARTS,
    UNKNOWN,
    CompletedJob,
    CostSource,
    EventRecord,
    LostTotals,
    PreemptionCost,
    PreemptionRecord,
    RunProgressRecord,
    RunRecord,
    Sample,
)
from slurm_tiresias.store.rows import Rows

SAMPLES_AT_A_TIME = 2000
LOOKED_AT_FOR_EACH = 5
"""The published events are chosen from this many times as many."""

PREEMPTIBLE = f"lane = '{Lane.PREEMPTIBLE}'"
"""Only normal jobs count: how long people stay at a prompt says nothing about jobs that can be
preempted."""


_KNOWN = f"source NOT IN {tuple(map(str, UNKNOWN))}"


class JobRows(Rows[JobAccount]):
    """The accounts of jobs."""

    def live(self) -> dict[str, JobAccount]:
        """Return every job that has not ended, or whose restart has not been seen yet, and those
        with unconfirmed runs."""
        unconfirmed = "key IN (SELECT key FROM runs WHERE confirmed = 0)"
        unseen = "key IN (SELECT key FROM jobs WHERE is_restarted = 1 AND failed_run = restarts)"
        query = f"WHERE ended_s IS NULL OR {unseen} OR {unconfirmed}"
        return {one.key: one for one in self.select(query)}

    def one(self, key: str) -> JobAccount | None:
        return next(iter(self.of(key)), None)

    def tasks_of(self, array: str, at_most: int) -> list[JobAccount]:
        """Return the first ``at_most`` tasks of an array, given its job id."""
        # Keys that begin with "12_" sort before "12`".
        rest = "WHERE key > ? AND key < ? ORDER BY CAST(substr(key, ?) AS INTEGER), key LIMIT ?"
        return list(self.select(rest, f"{array}_", f"{array}`", len(array) + 2, at_most))

    def alive_since(self, since_s: float) -> list[JobAccount]:
        """Return every job that has not ended before ``since_s``."""
        return list(self.select("WHERE ended_s IS NULL OR ended_s >= ?", since_s))

    def completed(self, most_recent: int) -> list[CompletedJob]:
        """Return the last jobs to end that have run, oldest first; 0.2 s with 100,000 jobs."""
        query = (
            "SELECT key, submitted_s, ended_s, tier, preemptions, SUM(elapsed_s), MAX(gpus) FROM "
            "(SELECT key, submitted_s, ended_s, tier, preemptions FROM jobs "
            f"WHERE ended_s IS NOT NULL AND first_started_s IS NOT NULL AND {PREEMPTIBLE} "
            "ORDER BY ended_s DESC LIMIT ?) "
            # CROSS keeps SQLite from reordering: jobs first, then their runs by key.
            "CROSS JOIN runs USING (key) GROUP BY key ORDER BY ended_s"
        )
        return [CompletedJob(*row) for row in self._database.read(query, (most_recent,))]

    def past(self, most_recent: int) -> Iterator[tuple[Any, ...]]:
        """Return of the last jobs to end that have run: when they were submitted, their GPUs, user,
        name and time limit, how long they ran, and that they have ended."""
        query = (
            "SELECT submitted_s, MAX(gpus), user, name, time_limit_s, SUM(elapsed_s), 1 FROM "
            "(SELECT key, submitted_s, user, name, time_limit_s FROM jobs "
            f"WHERE ended_s IS NOT NULL AND first_started_s IS NOT NULL AND {PREEMPTIBLE} "
            "ORDER BY ended_s DESC LIMIT ?) CROSS JOIN runs USING (key) GROUP BY key"
        )
        return self._database.read(query, (most_recent,))

    def first_start_of_live_s(self) -> float | None:
        """Return the first start among the jobs that have not ended; None if none has started."""
        query = "SELECT MIN(first_started_s) FROM jobs WHERE ended_s IS NULL"
        first_s: float | None = self._database.read_one(query)
        return first_s


class RunRows(Rows[RunRecord]):
    """The runs of jobs."""

    def live(self) -> dict[str, dict[float, RunRecord]]:
        """Return the runs of the jobs that ``JobRows.live`` returns, by job and start time."""
        rest = (
            "WHERE key IN (SELECT key FROM jobs WHERE ended_s IS NULL) "
            "OR key IN (SELECT key FROM runs WHERE confirmed = 0)"
        )
        found: dict[str, dict[float, RunRecord]] = {}
        for record in self.select(rest):
            found.setdefault(record.key, {})[record.start_s] = record
        return found

    def of(self, job: str) -> list[RunRecord]:
        """Return the runs of a job, the first one first."""
        return sorted(super().of(job), key=lambda run: run.began_s)

    def since(self, since_s: float) -> dict[str, list[RunRecord]]:
        """Return the runs that started at or after ``since_s``, by job, oldest first."""
        # The condition on end_s is redundant, but has an index.
        rest = "WHERE (end_s IS NULL OR end_s >= ?) AND start_s >= ? ORDER BY start_s"
        found: dict[str, list[RunRecord]] = {}
        for record in self.select(rest, since_s, since_s):
            found.setdefault(record.key, []).append(record)
        return found

    def ended_since(self, since_s: float, charge: str) -> list[EndedRun]:
        """Return the runs that ended after ``since_s``, each with the user or account charged."""
        query = (
            "SELECT key, start_s, user, account, end_s, elapsed_s * gpus FROM runs "
            "JOIN jobs USING (key) WHERE end_s > ?"
        )
        return [
            EndedRun(key, start_s, payer_of(charge, user, account), end_s, service_gpu_s)
            for key, start_s, user, account, end_s, service_gpu_s in self._database.read(
                query, (since_s,)
            )
        ]

    def in_lane(self, lane: Lane, since_s: float) -> list[tuple[str, RunRecord]]:
        """Return the runs in a lane that ended after ``since_s``, each with its user."""
        jobs = "FROM jobs WHERE lane = ?"
        rest = f"WHERE end_s > ? AND key IN (SELECT key {jobs})"
        users = dict(self._database.read(f"SELECT key, user {jobs}", (lane,)))
        return [(users[run.key], run) for run in self.select(rest, since_s, lane)]


class ProgressRows(Rows[RunProgressRecord]):
    """The last report of each run that has ended; runs without one are left out."""

    def of_live_jobs(self) -> list[RunProgressRecord]:
        """Return those of all jobs that have not ended, earliest runs first."""
        rest = "JOIN jobs USING (key) WHERE ended_s IS NULL ORDER BY run_progress.restarts"
        return list(self.select(rest))

    def habits(self) -> Iterator[tuple[tuple[str, str], ProgramHabit]]:
        """Yield what the runs of each program, by user and name, show of its pauses."""
        query = (
            "SELECT user, name, MAX(step), MAX(longest_gap_s), "
            "COALESCE(MAX(longest_gap_s / NULLIF(step_s, 0)), 0), "
            "COUNT(first_step_s - first_s), COALESCE(MAX(first_step_s - first_s), 0) "
            "FROM run_progress JOIN jobs USING (key) GROUP BY user, name"
        )
        for user, name, *shown in self._database.read(query):
            yield (user, name), ProgramHabit(*shown)


class PreemptionRows(Rows[PreemptionRecord]):
    """The preemptions of all jobs, kept as long as the job."""

    def losses_since(self, since_s: float) -> list[Loss]:
        """Return the losses that each user's jobs have caused to other users' jobs: see
        ``losses_of``."""
        query = (
            "SELECT p.at_s, o.user, v.user, r.gpus, r.elapsed_s, p.late_s "
            "FROM preemptions p JOIN jobs v ON v.key = p.key "
            # The preemptor's id may have been given to a new job since.
            "JOIN jobs o ON o.key = p.for_job AND o.submitted_s <= p.at_s "
            "JOIN runs r ON r.key = p.key AND r.start_s = p.run_start_s WHERE p.at_s > ?"
        )
        return [loss for row in self._database.read(query, (since_s,)) for loss in losses_of(*row)]


class CostRows(Rows[PreemptionCost]):
    """The measured costs of preemptions."""

    def awaited(self) -> list[PreemptionCost]:
        """Return the preemptions whose cost is not known yet."""
        return list(self.select("WHERE source = ?", CostSource.AWAITED))

    def lost_since(self, since_s: float) -> LostTotals:
        """Return the total losses of the preemptions since then."""
        lost = " + ".join(f"IFNULL({part}_s, 0)" for part in LOST_PARTS)
        query = (
            f"SELECT TOTAL(gpus * ({lost}) * ({_KNOWN})), TOTAL({_KNOWN}), TOTAL(source = ?), "
            "COUNT(*) FROM preemption_costs WHERE at_s >= ?"
        )
        row = next(self._database.read(query, (CostSource.AWAITED, since_s)))
        lost_gpu_s, (measured, not_yet, all_of_them) = row[0], map(int, row[1:])
        return LostTotals(lost_gpu_s, measured, not_yet, all_of_them - measured - not_yet)

    def last(self, most: int) -> list[tuple[str, str, PreemptionCost]]:
        """Return the latest known costs of preemptions, each with the user and the name of its job,
        oldest first."""
        costs = list(self.select(f"WHERE {_KNOWN} ORDER BY at_s DESC LIMIT ?", most))[::-1]
        keys = json.dumps(sorted({cost.key for cost in costs}))
        query = "SELECT key, user, name FROM jobs WHERE key IN (SELECT value FROM json_each(?))"
        owners = {key: owner for key, *owner in self._database.read(query, (keys,))}
        return [(*owners[cost.key], cost) for cost in costs if cost.key in owners]


class EventRows(Rows[EventRecord]):
    """What has happened to jobs."""

    def last(self, count: int) -> list[EventRecord]:
        """Return the latest events, oldest first.

        Each user gets an equal share, so that one user's jobs do not displace those of others;
        shares that are not used go to other users.
        """
        rest = (
            "WHERE number IN (SELECT number FROM "
            "(SELECT *, ROW_NUMBER() OVER (PARTITION BY user ORDER BY number DESC) AS place FROM "
            "(SELECT number, jobs.user FROM events LEFT JOIN jobs ON jobs.key = events.job_id "
            "ORDER BY number DESC LIMIT ?)) ORDER BY place, number DESC LIMIT ?) ORDER BY number"
        )
        return list(self.select(rest, LOOKED_AT_FOR_EACH * count, count))

    def of_job(self, key: str, since_s: float) -> list[EventRecord]:
        """Return the events of a job and those that it caused, oldest first.

        Only from ``since_s`` on: before that, another job had its id.
        """
        rest = "WHERE (job_id = ? OR other = ?) AND at_s >= ? ORDER BY number"
        return list(self.select(rest, key, key, since_s))

    def of_kind(self, kind: str, since_s: float) -> list[EventRecord]:
        """Return all events of one kind from a time on, oldest first."""
        return list(self.select("WHERE kind = ? AND at_s >= ? ORDER BY number", kind, since_s))


class SampleRows(Rows[Sample]):
    """The samples of pruned jobs. Those of other ended jobs are computed from their runs."""

    def since(
        self, since_s: float = -math.inf, meanwhile: Callable[[], None] = lambda: None
    ) -> list[Sample]:
        """Return the latest jobs that have run and ended since then, oldest first.

        They include pruned jobs. ``meanwhile`` is called repeatedly: 100,000 jobs take 0.4 s, and
        much longer on a slow disk.
        """
        of_runs = "(SELECT SUM({}) FROM runs WHERE key = jobs.key)"
        kept = (
            f"SELECT ended_s, user, name, {of_runs.format('elapsed_s')}, "
            f"{of_runs.format('elapsed_s * gpus')}, time_limit_s "
            f"FROM jobs WHERE ended_s >= ? AND first_started_s IS NOT NULL AND {PREEMPTIBLE} "
            "ORDER BY ended_s DESC LIMIT ?"
        )
        columns = ", ".join(self.table.columns)
        pruned = f"SELECT {columns} FROM samples WHERE ended_s >= ? ORDER BY number DESC LIMIT ?"
        found: list[Sample] = []
        for query in (kept, pruned):
            room = (self.table.most_rows or 0) - len(found)
            for number, row in enumerate(self._database.read(query, (since_s, room))):
                found.append(Sample(*row))
                if number % SAMPLES_AT_A_TIME == 0:
                    meanwhile()
        return [one for one in reversed(found) if one.run_s is not None]

    def keep_of(self, keys: str) -> None:
        """Keep samples of jobs that are about to be pruned, given as JSON."""
        self._database.change(
            f"INSERT INTO samples ({', '.join(self.table.columns)}) "
            "SELECT ended_s, user, name, SUM(elapsed_s), SUM(elapsed_s * gpus), time_limit_s "
            "FROM jobs JOIN runs USING (key) WHERE key IN (SELECT value FROM json_each(?)) "
            f"AND {PREEMPTIBLE} GROUP BY key ORDER BY ended_s",
            (keys,),
        )
        self.trim()
