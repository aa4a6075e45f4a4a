"""The runs of each job: their durations, their GPUs, and whether these are confirmed.

A run under way is measured by Slurm's own clock at each observation. The figures of an ended run
come from Slurm while it still shows it; otherwise they are estimated until accounting has them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from slurm_tiresias.core.job import ALL_ALIKE
from slurm_tiresias.model import JobState, JobStatus, last_ended, weighed_gpus
from slurm_tiresias.store.changes import Changes
from slurm_tiresias.store.records import RunRecord

CONFIGURING = "CONFIGURING"
"""Slurm's state of a job whose nodes boot. Slurm resets the job's start time when they are up."""


class Runs:
    """The runs of all jobs in the job store."""

    def __init__(self, changes: Changes, interval_s: float, has_accounting: bool) -> None:
        self._changes = changes
        self._rows = changes.ledger.runs
        self._interval_s = interval_s
        self.has_accounting = has_accounting
        self._runs = self._rows.live()
        """By job and start time."""
        self._learned: dict[str, int] = {}
        self.gpu_weights: Mapping[str, float] = ALL_ALIKE
        self._booted_since_s: dict[str, float] = {}
        """By job whose nodes boot, or have not booted, the start that Slurm showed."""
        self.clock_set_by_s = 0.0
        """How far Slurm's clock was set in all since the controller started."""

    def fetch(self, key: str) -> None:
        """Read the runs of a job that ended long ago from the ledger."""
        self._runs[key] = {run.start_s: run for run in self._rows.of(key)}

    def let_go(self, key: str) -> None:
        """Keep the runs of a job in the ledger only."""
        self._runs.pop(key, None)
        self._learned.pop(key, None)
        self._booted_since_s.pop(key, None)

    # What is known

    def of(self, key: str) -> Collection[RunRecord]:
        """Return the runs of a job, in no particular order."""
        return self._runs.get(key, {}).values()

    def in_order(self, key: str) -> Sequence[RunRecord]:
        """Return the runs of a job, in memory or not, the first one first."""
        return sorted(self.of(key) or self._rows.of(key), key=lambda run: run.began_s)

    def left_s(self, job: JobStatus, now_s: float) -> float:
        """Return when a requeued job left its nodes; it may run again by now, or have ended."""
        runs = (run for run in self.of(job.key) if run.start_s != job.start_s)
        last = last_ended(runs)
        left_s = last.end_s if last else None
        if left_s is None:
            left_s = now_s if job.start_s is None else job.spec.submit_s
        return left_s if job.start_s is None else min(left_s, job.start_s)

    def run(self, key: str, start_s: float) -> RunRecord | None:
        """Return one run; None if it is unknown."""
        return self._runs.get(key, {}).get(start_s)

    def only_booted(self, key: str, start_s: float) -> bool:
        """Whether nothing but a boot was seen of a run: if that fails, no program has run."""
        return self._booted_since_s.get(key) == start_s

    def last_ended(self, key: str) -> RunRecord | None:
        """Return the last run of a job that has ended; None if none has."""
        return last_ended(self.of(key))

    def learned(self, key: str) -> int:
        """Return how often a job's runs have changed: a version number for caches."""
        return self._learned.get(key, 0)

    def attained_gpu_s(self, key: str) -> float:
        """Return a job's attained service over all runs, in GPU-seconds."""
        return sum(run.attained_gpu_s for run in self.of(key))

    def executed_s(self, key: str) -> float:
        """Return a job's running time over all runs, in seconds."""
        return sum(run.elapsed_s for run in self.of(key))

    # Taking in observations

    def measure(self, job: JobStatus, requeue_sent_s: float | None, now_s: float) -> None:
        """Update a job's runs, and close those that have ended."""
        mine = self._runs.setdefault(job.key, {})
        runs = job.state in (JobState.RUNNING, None) and job.slurm_state != CONFIGURING
        shown = job.start_s if runs else None
        if job.slurm_state == CONFIGURING and job.start_s is not None:
            self._booted_since_s[job.key] = job.start_s
        elif job.state is JobState.RUNNING:
            self._booted_since_s.pop(job.key, None)
        if shown is not None and job.state is None and self.only_booted(job.key, shown):
            shown = None
        for start_s, run in list(mine.items()):
            if run.end_s is None and start_s != shown:
                # It ended between two observations. Until accounting has its end, assume that it
                # lasted at least as long as observed, and at most one interval longer.
                latest_s = now_s if requeue_sent_s is None else requeue_sent_s
                most_s = run.elapsed_s + self._interval_s
                elapsed_s = latest_s - start_s - run.clock_set_by_s
                elapsed_s = max(run.elapsed_s, min(elapsed_s, most_s))
                end_s = start_s + elapsed_s + run.clock_set_by_s
                final = not self.has_accounting
                self.keep(replace(run, end_s=end_s, elapsed_s=elapsed_s, confirmed=final))
        if shown is not None:
            ended = job.state is not JobState.RUNNING
            known = mine.get(shown)
            over_s = (job.end_s or now_s) if ended else None
            gpus = sum(amount.gpu_count for amount in job.allocation.values())
            counts_for = weighed_gpus(job.allocation, self.gpu_weights)
            self.keep(
                RunRecord(
                    key=job.key,
                    start_s=shown,
                    end_s=over_s,
                    elapsed_s=_elapsed_s(job, known, over_s, now_s),
                    gpus=gpus or (known.gpus if known else job.spec.request.gpu_count),
                    confirmed=ended and (known is not None or not self.has_accounting),
                    redone_s=known.redone_s if known else 0.0,
                    idle_gpu_s=known.idle_gpu_s if known else 0.0,
                    clock_set_by_s=known.clock_set_by_s if known else 0.0,
                    idle_s=known.idle_s if known else 0.0,
                    clock_set_since_s=known.clock_set_since_s if known else 0.0,
                    nodes=",".join(sorted(job.ended_on or job.allocation))
                    or (known.nodes if known else ""),
                    outcome=job.slurm_state if ended else "",
                    step_s=known.step_s if known else None,
                    hung_s=known.hung_s if known else 0.0,
                    false_verdicts=known.false_verdicts if known else 0,
                    weight=counts_for / gpus if gpus else known.weight if known else 1.0,
                )
            )

    def keep(self, run: RunRecord) -> None:
        """Replace what is known of a run; it is committed with the other changes."""
        mine = self._runs.setdefault(run.key, {})
        if mine.get(run.start_s) != run:
            mine[run.start_s] = run
            self._changes.put(self._rows, run)
            self._learned[run.key] = self._learned.get(run.key, 0) + 1

    def close_as_last_seen(self, key: str) -> None:
        """Close the runs of a job that Slurm has forgotten, with what was last observed."""
        for run in list(self.of(key)):
            if run.end_s is None:
                seen_s = run.start_s + run.elapsed_s + run.clock_set_by_s
                self.keep(replace(run, end_s=seen_s, confirmed=not self.has_accounting))

    def running_since_s(self, job: JobStatus) -> float | None:
        """Return when a running job started, by the clock as it is set now; None for other jobs."""
        if job.state is not JobState.RUNNING or job.start_s is None:
            return None
        run = self.run(job.key, job.start_s)
        return job.start_s + (run.clock_set_by_s if run else 0.0)

    def ran_s(self, job: JobStatus) -> float:
        """Return how long the present run of a job has lasted; 0 if it does not run."""
        run = None if job.start_s is None else self.run(job.key, job.start_s)
        return run.elapsed_s if run and job.state is JobState.RUNNING else 0.0

    def clock_was_set(self, by_s: float) -> None:
        """Record that the clock was stepped, so that runs under way keep their durations, and all
        their order."""
        self.clock_set_by_s += by_s
        for runs in list(self._runs.values()):
            for run in list(runs.values()):
                if run.end_s is None:
                    self.keep(replace(run, clock_set_by_s=run.clock_set_by_s + by_s))
                else:
                    self.keep(replace(run, clock_set_since_s=run.clock_set_since_s + by_s))

    @property
    def changed(self) -> Collection[RunRecord]:
        """The runs that the ledger lacks."""
        return self._changes.put_off(self._rows)


def _elapsed_s(job: JobStatus, known: RunRecord | None, end_s: float | None, now_s: float) -> float:
    """Return how long a job runs or has run, without steps of the clock.

    A running job has never run for less than at the last observation: Slurm reports whole seconds,
    by clocks that may differ.
    """
    if known is None:
        return job.elapsed_s
    if end_s is not None:
        return ended_without_steps(known, end_s, job.elapsed_s)
    return max(known.elapsed_s, _without_steps(known, now_s, job.elapsed_s))


def ended_without_steps(run: RunRecord, end_s: float, shown_s: float) -> float:
    """Return the duration of an ended run from what Slurm shows, without steps of its clock.

    The last step may have come after the end, when the run was last observed before both. Of the
    two possible durations, the one closer to what was observed is taken.
    """
    stepped_s = _without_steps(run, end_s, shown_s)
    if end_s < run.start_s or abs(stepped_s - run.elapsed_s) < abs(shown_s - run.elapsed_s):
        return stepped_s
    return shown_s


def _without_steps(run: RunRecord, until_s: float, shown_s: float) -> float:
    if not run.clock_set_by_s:
        return shown_s
    # Slurm shows no running time if the clock was set back before the start.
    return max(0.0, min(shown_s, until_s - run.start_s) - run.clock_set_by_s)
