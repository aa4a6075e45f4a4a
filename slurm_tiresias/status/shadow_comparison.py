"""Compare what shadow mode would have done with what happened without it.

Each job is compared by itself: when the controller would first have started it, and when Slurm did.
After the first difference the real queue is no longer the simulated one, so this shows which jobs
differ and how often, but not the overall effect; simulate the same jobs for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from slurm_tiresias.model import JobAccount
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.records import EventRecord, RunRecord

WOULD = "would"
WOULD_START = "start on "
SHADOW = "shadow"
MODE, SHADOW_SINCE_S = "mode", "shadow_since_s"
"""Facts of the ledger: the mode of the last cycle, and since when that has been shadow mode."""


@dataclass(frozen=True, slots=True)
class EarlierStart:
    """A job that the controller would have started before Slurm did.

    User and name are hostile text. ``gpus`` and ``started_s`` are None if it has not started.
    """

    job_id: str
    user: str
    name: str
    gpus: int | None
    would_start_s: float
    started_s: float | None
    until_s: float
    """When it started, or ended without a start; otherwise now."""

    @property
    def by_s(self) -> float:
        return self.until_s - self.would_start_s


@dataclass(frozen=True, slots=True)
class ShadowVictim:
    """A job that would have been preempted, and for how many different jobs."""

    job_id: str
    user: str
    name: str
    times: int


@dataclass(frozen=True, slots=True)
class ShadowComparison:
    """The comparison since shadow mode began; ``jobs`` counts all jobs in that time."""

    since_s: float
    until_s: float
    jobs: int
    sooner: tuple[EarlierStart, ...]
    disturbed: tuple[ShadowVictim, ...]


def remember_mode(ledger: Ledger, mode: str, now_s: float) -> None:
    """Record the controller's mode, and when shadow mode began.

    In a ledger of a version without this record, shadow mode began with its first event.
    """
    before = ledger.value(MODE)
    if mode == before:
        return
    if mode == SHADOW:
        known = ledger.events.of_kind(WOULD, 0.0) if before is None else []
        ledger.set_value(SHADOW_SINCE_S, repr(known[0].at_s if known else now_s))
    ledger.set_value(MODE, mode)


def compare_shadow(
    ledger: Ledger, since_s: float | None, now_s: float, least_s: float
) -> ShadowComparison | None:
    """Compare what the ledger has of shadow mode since then, or since it last began.

    Returns None if there was none. Leaves out jobs that would have gained less than ``least_s``.
    """
    value = ledger.value(SHADOW_SINCE_S)
    began_s = None if value is None else float(value)
    first_s = began_s if since_s is None else since_s
    events = ledger.events.of_kind(WOULD, first_s or 0.0)
    if began_s is None and not events:
        return None
    if first_s is None or began_s is None:
        first_s = events[0].at_s
    elif first_s < began_s:
        # The ledger has events of earlier shadow modes, but not their beginnings.
        first_s = min([began_s, *(event.at_s for event in events[:1])])
    jobs = {job.key: job for job in ledger.jobs.alive_since(first_s)}
    runs = ledger.runs.since(first_s)
    return ShadowComparison(
        since_s=first_s,
        until_s=now_s,
        jobs=len(jobs),
        sooner=tuple(_sooner(events, jobs, runs, now_s, least_s)),
        disturbed=tuple(_disturbed(events, jobs)),
    )


def _sooner(
    events: Sequence[EventRecord],
    jobs: Mapping[str, JobAccount],
    runs: Mapping[str, Sequence[RunRecord]],
    now_s: float,
    least_s: float,
) -> Iterable[EarlierStart]:
    """Return the jobs that would have started sooner, the largest difference first."""
    would_start_s: dict[str, float] = {}
    for event in events:
        if event.text.startswith(WOULD_START):
            would_start_s.setdefault(event.job_id, event.at_s)
    found = (
        _against_what_happened(jobs[key], at_s, runs.get(key, ()), now_s)
        for key, at_s in would_start_s.items()
        if key in jobs
    )
    return sorted((one for one in found if one.by_s >= least_s), key=lambda one: -one.by_s)


def _against_what_happened(
    job: JobAccount, would_start_s: float, runs: Sequence[RunRecord], now_s: float
) -> EarlierStart:
    run = next((run for run in runs if run.start_s >= would_start_s), None)
    waited_until_s = job.ended_s or now_s
    return EarlierStart(
        job_id=job.key,
        user=job.user,
        name=job.name,
        gpus=run.gpus if run else None,
        would_start_s=would_start_s,
        started_s=run.start_s if run else None,
        until_s=run.start_s if run else waited_until_s,
    )


def _disturbed(
    events: Sequence[EventRecord], jobs: Mapping[str, JobAccount]
) -> Iterable[ShadowVictim]:
    """Return the jobs that would have been preempted, the most frequent first."""
    for_whom: dict[str, set[str]] = {}
    for event in events:
        # A job that is never really preempted would be in every cycle: count each preemptor once.
        if event.other and event.job_id in jobs:
            for_whom.setdefault(event.job_id, set()).add(event.other)
    found = (
        ShadowVictim(key, jobs[key].user, jobs[key].name, len(others))
        for key, others in for_whom.items()
    )
    return sorted(found, key=lambda one: -one.times)
