"""Explain an array: how many tasks wait or run, why, and what would change that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from slurm_tiresias.explanation.folded import in_order, numbered, why_alike
from slurm_tiresias.explanation.reasons import (
    MODE_TEXTS,
    reason_text,
    slurm_does,
    slurm_reason_text,
    what_to_do,
)
from slurm_tiresias.explanation.section import SCHEMA, Explanation, Section
from slurm_tiresias.gpu_hours import gpu_hours
from slurm_tiresias.model import JobState
from slurm_tiresias.status.published import PublishedJob, PublishedState
from slurm_tiresias.text import count, printable

MOST_REASONS = 8


@dataclass(frozen=True, slots=True)
class TierSummary:
    """The tasks in one tier; None for tasks that are not managed."""

    tier: int | None
    running_tasks: int
    running_gpus: int
    pending_tasks: int
    pending_gpus: int


@dataclass(frozen=True, slots=True)
class ReasonSummary:
    """The tasks in one state for one reason. ``slurm_reason`` is set only if Slurm makes them wait;
    ``would`` only if the controller does not act and Slurm does something else."""

    state: str
    reason: str
    slurm_reason: str
    would: str
    tasks: tuple[str, ...]


def explain_array(array: str, tasks: Sequence[PublishedJob], state: PublishedState) -> Explanation:
    """Return the explanation of an array with these tasks."""
    tasks = in_order(tasks)
    first, waiting = tasks[0], [task for task in tasks if _waits(task)]
    headline = (
        f"Array {printable(array)} ({printable(first.name)}) of {printable(first.user)}, "
        f"partition {printable(first.partition)}: {count(len(tasks), 'task')} that run or wait; "
        f"{len(tasks) - len(waiting):,} run, {len(waiting):,} wait."
    )
    attained = f"They have attained {gpu_hours(sum(task.attained_gpu_s for task in tasks))} in all."
    by_tier, by_reason = tiers(tasks), reasons(tasks)
    because = [_because(each) for each in by_reason[:MOST_REASONS]]
    if len(by_reason) > MOST_REASONS:
        because.append(f"And {count(len(by_reason) - MOST_REASONS, 'reason')} more.")
    found = (
        Section("Its tasks by tier", (attained,), tuple(map(_standing, by_tier))),
        Section("Reasons, the most frequent first", (), tuple(because)),
        Section("What changes it", tuple(_next(waiting, acts=state.acts))),
    )
    return Explanation(
        headline=(headline,) if state.acts else (headline, MODE_TEXTS.get(state.mode, "")),
        sections=tuple(section for section in found if section.sentences or section.items),
        data={
            "schema": SCHEMA,
            "cluster": state.cluster,
            "mode": state.mode,
            "at_s": state.at_s,
            "array": array,
            "tiers": [asdict(tier) for tier in by_tier],
            "reasons": [asdict(reason) for reason in by_reason],
        },
    )


def tiers(tasks: Sequence[PublishedJob]) -> tuple[TierSummary, ...]:
    """Return the tiers with their tasks, the highest tier first."""
    found: dict[int | None, TierSummary] = {}
    for tier in sorted({task.tier for task in tasks}, key=lambda t: (t is None, t)):
        here = [task for task in tasks if task.tier == tier]
        waiting = [task for task in here if _waits(task)]
        waiting_gpus = sum(task.gpus for task in waiting)
        gpus = sum(task.gpus for task in here) - waiting_gpus
        found[tier] = TierSummary(tier, len(here) - len(waiting), gpus, len(waiting), waiting_gpus)
    return tuple(found.values())


def reasons(tasks: Sequence[PublishedJob]) -> tuple[ReasonSummary, ...]:
    """Group the tasks by state and reason, the largest group first; tasks in the given order."""
    alike: dict[tuple[str, str, str, str], list[str]] = {}
    for task in in_order(tasks):
        alike.setdefault((task.state, *why_alike(task)), []).append(task.job_id)
    found = (ReasonSummary(*why, tuple(job_ids)) for why, job_ids in alike.items())
    return tuple(sorted(found, key=lambda summary: -len(summary.tasks)))


def _waits(task: PublishedJob) -> bool:
    return task.state == JobState.PENDING.value


def _standing(tier: TierSummary) -> str:
    where = "Not managed" if tier.tier is None else f"Tier {tier.tier}"
    parts = (
        (tier.running_tasks, f"run on {count(tier.running_gpus, 'GPU')}"),
        (tier.pending_tasks, f"wait for {count(tier.pending_gpus, 'GPU')}"),
    )
    return f"{where}: {', '.join(f'{tasks:,} {what}' for tasks, what in parts if tasks)}."


def _because(why: ReasonSummary) -> str:
    text = reason_text(why.reason)
    if why.would:
        pending = why.state == JobState.PENDING.value
        does = slurm_does(pending, why.state, slurm_reason_text(why.slurm_reason))
        which = f"{len(why.tasks):,} {why.state} ({numbered(why.tasks)}), by Slurm: {does}"
        return f"{printable(which)}. The controller {printable(why.would)}."
    short = f"{text.short}: {slurm_reason_text(why.slurm_reason)}".removesuffix(": ")
    which = f"{len(why.tasks):,} {why.state} ({printable(numbered(why.tasks))}), {short}"
    return f"{printable(which)}. {f'{text.means} {text.ends}'.replace('JOBID', why.tasks[0])}"


def _next(waiting: Sequence[PublishedJob], *, acts: bool) -> Iterator[str]:
    if not waiting:
        return
    first = waiting[0]
    job_id = printable(first.job_id)
    if acts and (do := what_to_do(first.reason, first.slurm_reason)):
        yield do.replace("JOBID", job_id)
    yield (
        f"The first waiting task is {job_id}. What holds its GPUs, and when it may start, is shown "
        f"by: tiresias-slurm explain {job_id}"
    )
