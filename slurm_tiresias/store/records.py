"""What the rows of the state database are read as."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One stretch of running. ``end_s`` None: it still runs, or its end is not known yet."""

    key: str
    start_s: float
    end_s: float | None
    elapsed_s: float
    gpus: int
    confirmed: bool
    """Whether the elapsed time is Slurm's own final word."""

    @property
    def attained_gpu_s(self) -> float:
        return self.elapsed_s * self.gpus


@dataclass(frozen=True, slots=True)
class PreemptionRecord:
    """One run that ended so that another job could start.

    Unlike events, preemptions are kept as long as their job. ``at_s`` is when it was seen,
    ``run_start_s`` says which run it ended, ``asked_s`` when the job was signalled and its
    grace began; the tiers are those of both jobs then. None: not recorded, as before schema 4.
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
    """What an ended job that has run needed in all: the policies by history learn from it."""

    ended_s: float
    user: str
    name: str
    run_s: float
    service_gpu_s: float


@dataclass(frozen=True, slots=True)
class Pruned:
    """How much was removed, or would be."""

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
    """A job that is over. ``ran_s`` is over all its runs, ``gpus`` those of its widest."""

    key: str
    submitted_s: float
    ended_s: float
    tier: int
    preemptions: int
    ran_s: float
    gpus: int

    @property
    def jct_s(self) -> float:
        """From its first submission to its end."""
        return max(0.0, self.ended_s - self.submitted_s)

    @property
    def queued_s(self) -> float:
        """What of that it did not run."""
        return max(0.0, self.jct_s - self.ran_s)
