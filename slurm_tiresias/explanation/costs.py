"""What a preemption cost, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from slurm_tiresias.explanation.section import Section
from slurm_tiresias.gpu_hours import gpu_hours
from slurm_tiresias.status.job_history import JobHistory
from slurm_tiresias.store.records import CostSource, PreemptionCost
from slurm_tiresias.text import count, duration

WHY_UNKNOWN = {
    CostSource.AWAITED: "What it cost is not known yet: the job has made no new step since.",
    CostSource.SILENT: "What it cost is not known: the job does not report its steps.",
    CostSource.ENDED: "What it cost is not known: the job ended before it told where it went on.",
}


def cost_section(job: JobHistory) -> Section:
    """Return the cost of each of a job's preemptions, by the number of the run that it ended."""
    runs = {run.start_s: number for number, run in enumerate(job.runs, start=1)}
    known = ((runs[cost.run_start_s], cost) for cost in job.costs if cost.run_start_s in runs)
    costs = sorted(known, key=lambda numbered: numbered[0])
    return Section(
        "What its preemptions cost",
        items=tuple(f"Run {number}: {cost_text(cost)}" for number, cost in costs),
    )


def cost_text(cost: PreemptionCost) -> str:
    """Return what is known of the cost, in one to four sentences."""
    if not cost.is_known:
        return WHY_UNKNOWN[CostSource(cost.source)]
    return " ".join(_sentences(cost))


def _sentences(cost: PreemptionCost) -> Iterator[str]:
    yield _saved(cost)
    yield _again(cost)
    if cost.restart_s is None:
        yield "What the restart took is not known."
    else:
        yield f"The next run took {_seconds(cost.restart_s)} to its first new step."
    if cost.leave_s is None:
        yield "What it took to leave is not known."
    is_all = None not in (cost.leave_s, cost.restart_s)
    lost_s = cost.lost_gpu_s / cost.gpus if cost.gpus else 0.0
    yield (
        f"Lost in all{'' if is_all else ', as far as known'}: {_seconds(lost_s)} on "
        f"{count(cost.gpus, 'GPU')}, {gpu_hours(cost.lost_gpu_s)}."
    )


def _again(cost: PreemptionCost) -> str:
    work = f"{_seconds(cost.again_s)} of work" if cost.again_s else ""
    if cost.lost_all:
        return f"It saved nothing in this run{work and ', '}{work}."
    if cost.steps_again:
        return f"{count(cost.steps_again, 'step')} had to be repeated{work and ', '}{work}."
    return f"{work or 'No work'} had to be repeated."


def _saved(cost: PreemptionCost) -> str:
    if cost.answered_s is not None:
        left = "" if cost.leave_s is None else f", and was gone {_seconds(cost.leave_s)} later"
        return f"It saved within {_seconds(cost.answered_s)} of being asked{left}."
    left = "" if cost.leave_s is None else f"It was gone {_seconds(cost.leave_s)} after the request"
    if cost.source in (CostSource.OUTPUT, CostSource.SILENT):
        return (
            f"{left}; whether it saved is not known." if left else "Whether it saved is not known."
        )
    if cost.resumed_step and cost.steps_again == 0 and not cost.lost_all:
        # Reports in the comment are too rare to show the last save itself.
        return f"{left}, with all its work saved." if left else "All its work was saved."
    return f"{left}, without having saved." if left else "It did not save when asked."


def _seconds(seconds: float) -> str:
    """Format a short time with a decimal, if that says more."""
    return f"{seconds:.1f}s" if seconds < 10 else duration(seconds)
