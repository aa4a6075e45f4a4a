"""The rows of the state database."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run of a job; ``end_s`` is None while it runs or until its end is known."""

    key: str
    start_s: float
    end_s: float | None
    elapsed_s: float
    gpus: int
    confirmed: bool
    """Whether Slurm has given the final elapsed time."""
    redone_s: float = 0.0
    """How long it was protected because it did lost work again."""

    @property
    def attained_gpu_s(self) -> float:
        return self.elapsed_s * self.gpus


@dataclass(frozen=True, slots=True)
class RunProgressRecord:
    """What a run that has ended reported last: ``model.JobProgress`` as a row."""

    key: str
    restarts: int
    source: str
    state: str
    first_step: int
    step: int
    total: int | None
    reported_s: float
    advanced_s: float
    saved_step: int | None = None
    saved_s: float | None = None
    resumed_step: int | None = None
    step_s: float | None = None
    step_least_s: float | None = None
    step_most_s: float | None = None


@dataclass(frozen=True, slots=True)
class PreemptionRecord:
    """The preemption of one run.

    Unlike events, preemptions are kept as long as their job. ``at_s`` is when it was observed,
    ``run_start_s`` identifies the run, and ``asked_s`` is when the victim was signalled and its
    grace began; the tiers are those of both jobs at that time. None means not recorded, as before
    schema 4.
    """

    key: str
    for_job: str
    at_s: float
    run_start_s: float | None = None
    asked_s: float | None = None
    tier: int | None = None
    for_tier: int | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """The total run time and service of an ended job, from which policies learn."""

    ended_s: float
    user: str
    name: str
    run_s: float
    service_gpu_s: float
    time_limit_s: float | None = None


@dataclass(frozen=True, slots=True)
class Pruned:
    """The number of rows that were removed, or would be."""

    jobs: int = 0
    runs: int = 0
    preemptions: int = 0
    events: int = 0

    def __add__(self, other: Pruned) -> Pruned:
        return Pruned(
            self.jobs + other.jobs,
            self.runs + other.runs,
            self.preemptions + other.preemptions,
            self.events + other.events,
        )

    def __bool__(self) -> bool:
        return bool(self.jobs or self.events)


@dataclass(frozen=True, slots=True)
class EventRecord:
    """Something that happened to a job: see ``published.PublishedEvent``."""

    at_s: float
    kind: str
    job_id: str
    other: str
    text: str


@dataclass(frozen=True, slots=True)
class CompletedJob:
    """A job that has ended. ``ran_s`` is the sum over its runs, ``gpus`` the most of any run."""

    key: str
    submitted_s: float
    ended_s: float
    tier: int
    preemptions: int
    ran_s: float
    gpus: int

    @property
    def jct_s(self) -> float:
        """The job completion time, from the first submission to the end, in seconds."""
        return max(0.0, self.ended_s - self.submitted_s)

    @property
    def queued_s(self) -> float:
        """The part of ``jct_s`` in which the job did not run."""
        return max(0.0, self.jct_s - self.ran_s)
