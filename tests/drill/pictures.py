"""Possible observations of runs and trials, for the judge."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

from slurm_tiresias.drill.observed import Disposition, DrillRun, Process, Save, Trial, TrialKind

TERM = signal.SIGTERM
HANDLER, DEFAULT, IGNORED = Disposition.HANDLER, Disposition.DEFAULT, Disposition.IGNORED
START_S, TOLD_S = 1000.0, 1010.0
KILL_WAIT_S = 30.0


def process(
    pid: int,
    does: Disposition = HANDLER,
    *,
    gone_after_s: float | None = 0.3,
    parent: int = 0,
    command: str = "python3 train.py",
    cpu_s: float = 5.0,
    **more: Any,
) -> Process:
    """A process on n1; without ``parent`` it was started by Slurm."""
    return Process(
        node="n1",
        pid=pid,
        start=pid,
        parent=parent,
        command=command,
        direct=not parent,
        dispositions=dict.fromkeys((int(TERM), int(signal.SIGUSR1)), does),
        cpu_s=cpu_s,
        gone_s=None if gone_after_s is None else TOLD_S + gone_after_s,
        **more,
    )


def run(*processes: Process, number: int = 0, saved: int | None = None, **more: Any) -> DrillRun:
    """A run that did steps 1 to 10 and was then told to save; with ``saved`` it saved that step 0.2
    s later."""
    facts: Mapping[str, Any] = {
        "nodes": ("n1",),
        "started_s": START_S,
        "term_s": TOLD_S,
        "resumed_step": 0,
        "first_step": 1,
        "first_step_s": START_S + 1,
        "last_step": 10,
        "last_gone_s": TOLD_S + 0.3,
        "saves": () if saved is None else (Save(saved, TOLD_S + 0.1, TOLD_S + 0.2),),
    }
    return DrillRun(number, processes=processes or (process(1),), **{**facts, **more})


def after(resumed: int | None = 10, **more: Any) -> DrillRun:
    """The run that follows, which did one step and is not told to save."""
    first = None if resumed is None else resumed + 1
    facts: Mapping[str, Any] = {
        "number": 1,
        "resumed_step": resumed,
        "first_step": first,
        "last_step": first,
        "term_s": None,
    }
    return run(**{**facts, **more})


def starting(*processes: Process, **more: Any) -> DrillRun:
    """A run that was preempted before its first step."""
    return run(*processes, resumed_step=None, first_step=None, last_step=None, **more)


def trial(
    one: DrillRun, then: DrillRun | None, kind: TrialKind = TrialKind.STEP, **more: Any
) -> Trial:
    return Trial(kind, (one,), then, **more)
