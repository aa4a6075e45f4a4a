"""The runs of each job: how long each lasted, on how many GPUs, and whether that is certain.

A run that is under way is measured by Slurm's own clock at each observation. One that has ended is
taken from Slurm where it still shows it, and estimated until accounting tells where it does not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from slurm_tiresias.model import JobState, JobStatus
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.records import RunRecord

CONFIGURING = "CONFIGURING"
"""Slurm's state of a job whose nodes boot. It sets the job's start anew when they are up."""


class Runs:
    """The runs of all jobs that the job store knows, and which of them the ledger lacks."""

    def __init__(self, ledger: Ledger, interval_s: float, has_accounting: bool) -> None:
        self._ledger = ledger
        self._interval_s = interval_s
        self._has_accounting = has_accounting
        self._runs = ledger.runs()
        """By job and start."""
        self._changed: set[tuple[str, float]] = set()
        self._learned: dict[str, int] = {}
        self._clock_set_by_s: dict[tuple[str, float], float] = {}
        """By how much Slurm's clock has been set during a run."""

    def fetch(self, key: str) -> None:
        """Read the runs of a job that ended long ago from the ledger."""
        self._runs[key] = {run.start_s: run for run in self._ledger.runs_of(key)}

    def let_go(self, key: str) -> None:
        """Keep the runs of a job in the ledger only."""
        self._runs.pop(key, None)
        self._learned.pop(key, None)

    def forget(self, key: str) -> None:
        """The job's id was given to another one."""
        self.let_go(key)
        self._changed = {run for run in self._changed if run[0] != key}

    # What is known

    def of(self, key: str) -> Collection[RunRecord]:
        """What is known of each run of a job, in no order."""
        return self._runs.get(key, {}).values()

    def run(self, key: str, start_s: float) -> RunRecord | None:
        """What is known of one run."""
        return self._runs.get(key, {}).get(start_s)

    def learned(self, key: str) -> int:
        """How often something has been learned of a job's runs."""
        return self._learned.get(key, 0)

    def attained_gpu_s(self, key: str) -> float:
        """GPU-seconds over all runs."""
        return sum(run.attained_gpu_s for run in self.of(key))

    def executed_s(self, key: str) -> float:
        """Running seconds over all runs."""
        return sum(run.elapsed_s for run in self.of(key))

    # What is seen

    def measure(self, job: JobStatus, requeue_sent_s: float | None, now_s: float) -> None:
        """Bring a job's runs up to date, and close the ones that are over."""
        mine = self._runs.setdefault(job.key, {})
        runs = job.state in (JobState.RUNNING, None) and job.slurm_state != CONFIGURING
        shown = job.start_s if runs else None
        for start_s, run in list(mine.items()):
            if run.end_s is None and start_s != shown:
                # It ended between two looks: until accounting tells, it lasted at least as long as
                # it was seen to, and at most one interval more.
                latest_s = now_s if requeue_sent_s is None else requeue_sent_s
                most_s = run.elapsed_s + self._interval_s
                elapsed_s = max(run.elapsed_s, min(latest_s - start_s, most_s))
                end_s, final = start_s + elapsed_s, not self._has_accounting
                self.keep(replace(run, end_s=end_s, elapsed_s=elapsed_s, confirmed=final))
        if shown is not None:
            ended = job.state is not JobState.RUNNING
            known = mine.get(shown)
            gpus = sum(amount.gpu_count for amount in job.allocation.values())
            self.keep(
                RunRecord(
                    key=job.key,
                    start_s=shown,
                    end_s=(job.end_s or now_s) if ended else None,
                    elapsed_s=job.elapsed_s if ended else self._ran_s(job, known, now_s),
                    gpus=gpus or (known.gpus if known else job.spec.request.gpu_count),
                    confirmed=ended and (known is not None or not self._has_accounting),
                )
            )

    def keep(self, run: RunRecord) -> None:
        """Replace what is known of a run; committed with the rest."""
        mine = self._runs.setdefault(run.key, {})
        if mine.get(run.start_s) != run:
            mine[run.start_s] = run
            self._changed.add((run.key, run.start_s))
            self._learned[run.key] = self._learned.get(run.key, 0) + 1

    def close_as_last_seen(self, key: str) -> None:
        """Slurm no longer remembers the job: count what was seen until accounting tells."""
        for run in list(self.of(key)):
            if run.end_s is None:
                seen_s = run.start_s + run.elapsed_s
                self.keep(replace(run, end_s=seen_s, confirmed=not self._has_accounting))

    def running_since_s(self, job: JobStatus) -> float | None:
        """When a running job has started, by the clock as it is set now; None for others."""
        if job.state is not JobState.RUNNING or job.start_s is None:
            return None
        return job.start_s + self._clock_set_by_s.get((job.key, job.start_s), 0.0)

    def clock_was_set(self, by_s: float) -> None:
        """No run under way became longer or shorter by that."""
        for key, runs in self._runs.items():
            for run in runs.values():
                if run.end_s is None:
                    this = (key, run.start_s)
                    self._clock_set_by_s[this] = self._clock_set_by_s.get(this, 0.0) + by_s

    def _ran_s(self, job: JobStatus, known: RunRecord | None, now_s: float) -> float:
        """How long a running job has run, whatever its clock was set by meanwhile.

        Never less than at the last look: Slurm tells whole seconds, and by clocks that may differ.
        """
        least_s = known.elapsed_s if known else 0.0
        since_s = self.running_since_s(job)
        if job.start_s is None or since_s is None or since_s == job.start_s:
            return max(least_s, job.elapsed_s)
        # Slurm shows nothing for one that seems to start in the future.
        shown_s = min(job.elapsed_s, now_s - job.start_s)
        return max(least_s, shown_s - (since_s - job.start_s))

    # What the ledger lacks

    @property
    def changed(self) -> Iterable[RunRecord]:
        """The runs of which something has been learned since ``saved``."""
        return [self._runs[key][start_s] for key, start_s in self._changed]

    @property
    def changed_keys(self) -> set[str]:
        return {key for key, _ in self._changed}

    def saved(self) -> None:
        """The ledger has them all."""
        self._changed.clear()
