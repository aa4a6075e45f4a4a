"""The cost of a preemption: the time in which GPUs were held and no new step was done.

It is computed from the reports of the preempted run and of the next one, bounded by the times that
Slurm knows: a job that lies changes its costs only within these bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

from slurm_tiresias.model import JobProgress, ProgressSource

CLOCKS_DIFFER_S = 2.0
"""How much earlier, by its node's clock, a program may seem to receive a request than it was
sent."""


@dataclass(frozen=True, slots=True)
class LeftRun:
    """A run that was preempted, by Slurm's times.

    ``asked_s`` is when it was signalled, or requeued if there is no signal, and ``gone_s`` when its
    last process was gone, None if unknown. ``earlier_s`` is how long earlier runs of the job
    lasted.
    """

    start_s: float
    asked_s: float
    gone_s: float | None
    earlier_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Leaving:
    """What a run lost by leaving, in seconds; the fields are those of ``store.PreemptionCost``."""

    save_s: float
    leave_s: float | None
    again_s: float
    answered_s: float | None
    steps_again: int | None
    lost_all: bool


def leaving_of(run: LeftRun, told: JobProgress, resumed_step: int) -> Leaving:
    """Return the loss of a run with these reports, whose job resumed from ``resumed_step``.

    All time from when that step was reached to the end of the last process is lost.
    """
    asked_s = run.asked_s
    end_s = max(asked_s, _end_s(run, max(told.reported_s, told.saved_s or 0.0)))
    saved_s, answered_s = told.saved_s, None
    heard_s = told.asked_s
    if saved_s is not None and heard_s is not None:
        # The program knows the time of the request to the millisecond, the controller only to a
        # cycle.
        answers = saved_s >= heard_s >= asked_s - CLOCKS_DIFFER_S
        asked_s = min(heard_s, end_s) if answers else asked_s
    if saved_s is not None and saved_s >= asked_s:
        answered_s = saved_s - asked_s
    earliest_s = run.start_s - run.earlier_s
    reached_s = min(max(_reached_s(told, resumed_step, asked_s), earliest_s), end_s)
    save_s = 0.0
    if answered_s is not None and saved_s is not None and told.saved_step == resumed_step:
        until_s = min(max(saved_s, reached_s), end_s)
        save_s, again_s, leave_s = until_s - reached_s, 0.0, end_s - until_s
    else:
        again_s = max(0.0, asked_s - reached_s)
        leave_s = end_s - max(asked_s, reached_s)
    base = told.first_step if told.resumed_step is None else told.resumed_step
    return Leaving(
        save_s=save_s,
        leave_s=None if run.gone_s is None else leave_s,
        again_s=again_s,
        answered_s=answered_s,
        steps_again=max(0, told.step - resumed_step),
        lost_all=resumed_step <= base,
    )


def _end_s(run: LeftRun, told_s: float) -> float:
    """Return when the last process was gone. Slurm reports it in whole seconds, and reports of the
    run in the same second came before it."""
    if run.gone_s is None:
        return run.asked_s
    return told_s if run.gone_s < told_s < run.gone_s + 1.0 else run.gone_s


def leaving_after_save(run: LeftRun, saved_s: float) -> Leaving:
    """Return the loss of a run whose last save is the only known fact."""
    end_s = max(run.asked_s, _end_s(run, saved_s))
    saved_s = min(saved_s, end_s)
    answered_s = saved_s - run.asked_s if saved_s >= run.asked_s else None
    return Leaving(
        save_s=answered_s or 0.0,
        leave_s=None if run.gone_s is None else end_s - max(saved_s, run.asked_s),
        again_s=max(0.0, run.asked_s - max(saved_s, run.start_s)),
        answered_s=answered_s,
        steps_again=None,
        lost_all=saved_s < run.start_s,
    )


def leaving_without_a_step(run: LeftRun) -> Leaving:
    """Return the loss of a run that was preempted before its first report."""
    leave_s = None if run.gone_s is None else max(0.0, run.gone_s - run.asked_s)
    return Leaving(0.0, leave_s, 0.0, None, 0, lost_all=True)


def restart_s_of(told: JobProgress, start_s: float, ran_s: float, step_s: float) -> float | None:
    """Return how long a run of ``ran_s`` seconds took to its first new step, minus the time of a
    usual step; None if it made no step.

    For progress found in output, this is the first printed step and its time.
    """
    if told.first_step_s is None:
        return None
    took_s = told.first_step_s - start_s
    if told.source is not ProgressSource.OUTPUT:
        took_s -= step_s
    return min(max(0.0, took_s), ran_s)


def resumed_step_of(told: JobProgress) -> int:
    """Return the step from which a run resumed; taken from its first report if it does not say."""
    return told.first_step if told.resumed_step is None else told.resumed_step


def _reached_s(told: JobProgress, step: int, asked_s: float) -> float:
    """Return when the run had done this many steps; before its first report, this is
    extrapolated."""
    if step == told.saved_step and told.saved_s is not None:
        if told.saving_s is not None:
            return min(told.saving_s, told.saved_s)
        return min(told.saved_s, asked_s) if told.saved_s >= asked_s else told.saved_s
    per_step_s = 0.0
    if told.first_s is not None and told.step > told.first_step:
        per_step_s = max(0.0, told.reported_s - told.first_s) / (told.step - told.first_step)
    elif told.per_step is not None:
        per_step_s = told.per_step.likely_s
    return told.reported_s - (told.step - step) * per_step_s
