"""Judges the observed preemptions of a job: the cause of each failed trial, and its remedy. Has no
side effects."""

from __future__ import annotations

import enum
import re
import signal as signals
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from slurm_tiresias.drill.counters import MOST_STEP
from slurm_tiresias.drill.observed import (
    Disposition,
    Drill,
    DrillRun,
    Process,
    Save,
    Trial,
    TrialKind,
)

PAGE = "docs/how-to/save-and-resume.md"
SCRIPT = f"{PAGE}#the-batch-script"
SAVING = f"{PAGE}#with-the-library"
TRACKERS = f"{PAGE}#weights--biases-mlflow"
PYTORCH = f"{PAGE}#pytorch"

AT_ONCE_S = 1.0
"""A process that is gone this soon after a signal had no handler for it."""

LAUNCHER_WAITS_S = 2.5
"""A launcher that stops its workers gives them at least this long; a program that simply exits
needs less."""

LIKELY_TRAINS = 0.5
"""Of nested programs, the innermost with at least this share of the highest CPU time is
training."""

HANDLES = (Disposition.HANDLER, Disposition.BLOCKED)


REMEDIES: Mapping[str, Mapping[str, str]] = {
    SCRIPT: {
        "ended-by-signal": "Handle SIG{signal} by saving and continuing; until the program does, "
        "ignore it: `trap '' {signal}` in the script, or, as srun keeps no trap, "
        "srun bash -c 'trap \"\" {signal}; exec python3 ...'.",
        "ended-too-soon": "Save on SIG{signal} and continue; exit only on SIGTERM. For the drill, "
        "give it more steps, so that it runs for several minutes.",
        "not-reached": "End the script with `exec`: exec python3 ..., or exec srun python3 ....",
        "save-too-long": "Save faster, write from several processes, or ask for time before "
        "SIGTERM: --tiresias-checkpoint=USR1@60. The site can raise KillWait.",
        "output-pipe": "Redirect the output with >> instead of a pipe, so that it can still print.",
        "output-emptied": "Submit with --open-mode=append, and redirect to a log with >>.",
        "new-log": "Name the log after SLURM_JOB_ID, not after the time or the process, and append "
        "to it.",
        "survivor": "Start nothing with setsid, nohup or as a daemon, and end all child processes "
        "before the program exits.",
    },
    SAVING: {
        "ignored": "Save on SIG{signal}, with slurm_tiresias.job or a custom handler.",
        "no-handler": "Save on SIG{signal} in every process that trains: for step in "
        "slurm_tiresias.job.steps(...) does (agree=any_rank for several), or a handler that sets a "
        "flag.",
        "handler-in-parent-only": "Handle SIG{signal} in the program that trains and saves, not "
        "in what starts it.",
        "launcher-killed": "Start it with `tiresias-job run -- torchrun ...`: the launcher then "
        "gets no signal, and the processes still save.",
        "deleted-first": "Write the new checkpoint beside the old one and rename it, and delete "
        "none before. A save must be done within KillWait.",
        "stayed": "Check between two steps whether the job must leave, also in warm-up and "
        "evaluation, and end all threads and child processes after the save. What `tiresias-job "
        "run` starts learns of the signal only from slurm_tiresias.job.",
        "save-torn": "Let the handler only set a flag, and save between two steps: a signal during "
        "a save then does not end it. Write the checkpoint beside the old one and rename it.",
        "not-saved": "Write a checkpoint when the signal comes, before the program ends, and load "
        "the newest at the start.",
        "did-not-come-back": "See the last lines of its output: a start must handle anything that "
        "the previous one left, and names and GPUs of another node.",
        "overwritten": "Save only after the checkpoint is loaded, and only in the process that "
        "trains: forked workers inherit its signal handlers.",
        "other-node": "Keep checkpoints on a file system that all nodes see, not in /tmp, $TMPDIR "
        "or local scratch, under the same name at each start.",
        "resumed-from-nothing": "Look for a checkpoint first, in the same folder (not $TMPDIR) and "
        "under the same name (not with the time) at each start.",
        "resumed-earlier": "Store in each checkpoint the step at which it was saved, and load the "
        "newest.",
        "steps-skipped": "Store in each checkpoint the step at which it was saved, and go on from "
        "there.",
    },
    PYTORCH: {
        "workers-killed": "Let data-loader workers ignore SIGTERM (importing "
        "slurm_tiresias.job.torch does), and save without them."
    },
    TRACKERS: {
        "new-tracker-run": "Give it the id of the run that the job had: run_id(folder) of "
        "slurm_tiresias.job.tracker."
    },
}
"""What to change for each cause of a failed trial, by the section that explains it.
``{signal}`` is the name of the signal that the job must handle."""

ONCE = frozenset({"output-emptied", "new-log", "new-tracker-run", "survivor"})
"""Causes that are the same for every preemption of the job, and are reported once."""


@dataclass(frozen=True, slots=True)
class FailureCause:
    """Why a trial failed, how to solve it, and where that is explained."""

    code: str
    what: str
    change: str
    page: str


class TrialOutcome(enum.StrEnum):
    """The result of a trial."""

    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"
    NOT_TESTED = "not tested"
    """The job kept its steps, but the signal did not hit what the trial is about."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The observations of a trial. Steps and seconds are None if they are unknown."""

    kind: TrialKind
    outcome: TrialOutcome
    cause: FailureCause | None
    """Why it failed; None if it did not."""
    why_unknown: str
    """Why it is unknown whether the trial passed, or what was not tested; "" if it is known."""
    told_step: int | None
    """The step that the job had reached."""
    saved: bool | None
    save_s: float | None
    """From the signal to the end of the save."""
    asked: bool
    """Whether it was asked to save without a signal, because it saves on request and would get
    none."""
    answered: bool
    """Whether its report of a save that answers the signal ended the grace."""
    requeued_s: float | None
    """From the signal to the requeue; None if no signal was sent before it."""
    saved_step: int | None
    left_s: float | None
    """From SIGTERM until the last process was gone."""
    resumed_step: int | None
    first_step_s: float | None
    """From the next start to its first step."""
    steps_redone: int | None
    unit: str = "step"
    """What is counted: steps, or epochs."""


def judge_all(drill: Drill) -> tuple[Verdict, ...]:
    """Return the verdict on each trial. Problems with files are reported once."""
    # A job that goes wrong on the same node too, or goes on at its first start on another one, does
    # not go wrong because of the node.
    on_any_node = any(
        not _elsewhere(trial, one.began) if one.lost or one.skipped else _goes_on_elsewhere(trial)
        for trial in drill.trials
        for one in [_handover(trial)]
    )
    told: set[str] = set()
    verdicts = []
    for trial in drill.trials:
        verdict = judge(trial, drill.kill_wait_s, told, drill.unit, on_any_node=on_any_node)
        verdicts.append(verdict)
        if verdict.cause and verdict.cause.code in ONCE:
            told.add(verdict.cause.code)
    return tuple(verdicts)


def judge(
    trial: Trial,
    kill_wait_s: float,
    told: Container[str] = (),
    unit: str = "step",
    *,
    on_any_node: bool = False,
) -> Verdict:
    """Return the verdict on one trial; causes in ``told`` are left out.

    It passes only if no step was lost or skipped, and SIGKILL ended nothing. What was not seen is
    unknown. ``on_any_node``: other trials show that the node makes no difference.
    """
    handover = _handover(trial)
    run, after = trial.runs[0] if trial.runs else DrillRun(0), trial.after
    causes = _causes(trial, handover, kill_wait_s, on_any_node)
    code, what = next((found for found in causes if found[0] not in told), (None, ""))
    why = "" if code else trial.trouble or _what_is_unknown(trial, handover, unit)
    outcome = TrialOutcome.FAILED if code else TrialOutcome.UNKNOWN if why else TrialOutcome.PASSED
    if outcome is TrialOutcome.PASSED and (why := _what_is_not_tested(trial)):
        outcome = TrialOutcome.NOT_TESTED
    saves = _saves_after(run)
    is_lost = _had_work(trial, run) and not _has_saved(trial, run, handover)
    began = handover.began.resumed_step if handover.began else None
    redone = max(0, (handover.reached or 0) - (began or 0)) if handover.lost else 0
    return Verdict(
        kind=trial.kind,
        outcome=outcome,
        cause=_with_remedy(code, what, run) if code else None,
        why_unknown=why,
        told_step=run.last_step,
        saved=True if saves else False if is_lost else None,
        save_s=_since(run.told_s, saves[0].ended_s) if saves else None,
        asked=run.asked,
        answered=run.answered_s is not None,
        requeued_s=_since(run.signal_s, run.requeued_s),
        saved_step=saves[-1].step if saves else None,
        left_s=_since(run.term_s, run.last_gone_s),
        resumed_step=after.resumed_step if after else None,
        first_step_s=_since(after.started_s, after.first_step_s) if after else None,
        steps_redone=redone if after and after.first_step is not None else None,
        unit=unit,
    )


def _with_remedy(code: str, what: str, run: DrillRun) -> FailureCause:
    page, change = next((page, some[code]) for page, some in REMEDIES.items() if code in some)
    number = run.signal if run.ended else run.told_by
    name = signal_name(number or signals.SIGTERM).removeprefix("SIG")
    return FailureCause(code, what, change.format(signal=name), page)


# From run to run


@dataclass(frozen=True, slots=True)
class _Handover:
    """Where the starts after a trial's runs began, compared with what the runs had reached."""

    reached: int | None = None
    """The last step before the last start."""
    lost: int = 0
    skipped: int = 0
    worker: DrillRun | None = None
    """The run that did those steps."""
    began: DrillRun | None = None
    """The run that began earlier, or later, than it should."""
    saved_step: int | None = None
    """The last checkpoint that was announced with its step, and not yet lost by an earlier
    trial."""


def _handover(trial: Trial) -> _Handover:
    """Compare where each run began with what the runs before it had reached.

    Losses of earlier trials do not count against this one.
    """
    last, found = _Handover(), _Handover()
    runs = (*trial.before, *trial.runs, *([trial.after] if trial.after else []))
    for index, run in enumerate(runs):
        is_exact = run.every == 1 or run.claimed_step is None
        begins = run.first_step if is_exact else run.claimed_step
        if begins is not None:
            reached, saved = last.reached, last.saved_step
            if reached is not None and index > len(trial.before):
                done = (run.first_step or 0) - (run.every or MOST_STEP)
                if run.counts_done:
                    done = run.claimed_step or 0
                skipped = max(0, done - max(reached, saved or 0))
                if runs[index - 1].last_step is None:
                    skipped = 0
                lost = max(0, reached - begins)
                if lost + skipped >= found.lost + found.skipped:
                    found = replace(last, lost=lost, skipped=skipped, began=run)
            kept = None if saved is None else min(saved, begins)
            last = replace(last, reached=None, saved_step=kept)
        last = _worked(last, run)
    return found if found.began else last


def _worked(last: _Handover, run: DrillRun) -> _Handover:
    """Return what is reached, and saved, at the end of a run."""
    if run.last_step is not None:
        last = replace(last, reached=max(run.last_step, last.reached or 0), worker=run)
    for save in run.saves:
        if save.ended_s is not None and save.step is not None:
            last = replace(last, saved_step=save.step)
            # Of steps that are seen now and then a save may be the latest.
            near = last.reached is not None and 0 < save.step - last.reached <= (run.every or 0)
            if near and run.every != 1:
                last = replace(last, reached=save.step, worker=run)
    return last


# The rules: each yields a code and what was seen. The first that applies is the cause.

Found = tuple[str, str]


def _causes(
    trial: Trial, handover: _Handover, kill_wait_s: float, on_any_node: bool
) -> Iterator[Found]:
    killed = {run.number: _killed(trial, run, kill_wait_s) for run in trial.runs}
    may_tear = not any(run.ended or killed[run.number] for run in trial.runs)
    torn = may_tear and any(_is_torn(trial, run, handover) for run in trial.runs)
    for run in trial.runs:
        late = killed[run.number]
        if run.ended:
            yield _ended_itself(run)
        elif late:
            yield _stayed(run, late, kill_wait_s, bool(handover.lost))
        elif not torn and _had_work(trial, run) and not _has_saved(trial, run, handover):
            yield _not_saved(run, trainer(run), kill_wait_s)
    if torn:
        yield "save-torn", "A signal interrupted the save."
    if trial.after is not None:
        yield from _at_the_next_start(trial, trial.after, handover, on_any_node)
        yield from _about_output((*trial.before, *trial.runs), trial.after)
    if trial.survivors:
        one, others = trial.survivors[0], len(trial.survivors) - 1
        yield (
            "survivor",
            f"After the job had left {one.node}, one of its processes was still running: "
            f"{short_command(one.command)} (pid {one.pid})"
            + (f" and {others} more." if others else "."),
        )


def _ended_itself(run: DrillRun) -> Found:
    name, process = signal_name(run.signal or run.told_by), trainer(run)
    dies = process is not None and process.on(run.told_by) is Disposition.DEFAULT
    if run.finished:
        what = "The job did all of its steps before its requeue"
    elif process is not None and dies and not run.asked and not _saves_after(run):
        return (
            "ended-by-signal",
            f"The job was over before its requeue: {described(process)} died of {name}, and the "
            f"job ended as {run.ended}. Slurm does not requeue such a job.",
        )
    else:
        what = f"The job ended as {run.ended} after {name}, before its requeue"
    return "ended-too-soon", f"{what}. Slurm does not requeue such a job."


def _stayed(run: DrillRun, process: Process, kill_wait_s: float, lost: bool) -> Found:
    """Return why SIGKILL had to end a process."""
    name, does = signal_name(run.told_by), process.on(run.told_by)
    who, wait = described(process), f"{kill_wait_s:g} s after SIGTERM (KillWait)"
    after = f"SIGKILL ended {who} {wait}"
    saved = bool(_saves_after(run))
    if run.deleted and lost:
        file = run.deleted.rpartition("/")[2]
        what = f"{file} was deleted before the new checkpoint was complete, and {after}."
        return "deleted-first", what
    if not run.reaches(process):
        return _not_reached(process, name)
    if does is Disposition.IGNORED:
        return "ignored", f"{who} ignores {name}, and SIGKILL ended it {wait}."
    if dead := [one for one in _died_of_it(run) if one.command == process.command]:
        return (
            "no-handler",
            f"{described(dead[0])} has no handler for {name} and died of it; {after}, perhaps as "
            "it waited for the other.",
        )
    if any(save.ended_s is None for save in run.saves):
        return "save-too-long", f"{after}, in the middle of the save."
    if does is Disposition.BLOCKED and not saved:
        return "stayed", f"{after}: it has blocked {name}, and no save of it was seen."
    return (
        "stayed",
        f"{after}, {'long after its save' if saved else 'and no save of it was seen'}.",
    )


def _not_reached(process: Process, name: str) -> Found:
    return (
        "not-reached",
        f"{name} did not reach {described(process)}: here Slurm sends it only to the script's own "
        "process and to the tasks of srun.",
    )


def _not_saved(run: DrillRun, process: Process | None, kill_wait_s: float) -> Found:
    """Return why a run that was asked to save has not saved."""
    if process is None:
        return "not-saved", "The job did not save."
    name, who = signal_name(run.told_by), described(process)
    if not run.reaches(process):
        return _not_reached(process, name)
    above = _ancestors(run, process)
    if process.on(run.told_by) is Disposition.DEFAULT:
        if handling := [one for one in above if one.on(run.told_by) in HANDLES]:
            return (
                "handler-in-parent-only",
                f"{described(handling[0])} handles {name}, but {who}, which trains, does not, and "
                "was killed by it.",
            )
        what = f"{who} has no handler for {name}, and was killed by it without a save."
        return "no-handler", what
    lived_s, gone_s = _since(run.term_s, process.gone_s), process.gone_s or 0.0
    if lived_s is not None and lived_s >= LAUNCHER_WAITS_S:
        for one in above:
            outlived = one.gone_s is None or one.gone_s > gone_s
            if outlived and one.on(signals.SIGTERM) in HANDLES:
                return (
                    "launcher-killed",
                    f"The launcher, {described(one)}, ended its workers {lived_s:.0f} s after "
                    "SIGTERM (torchrun waits 30 s), before they had saved; Slurm would have waited "
                    f"{kill_wait_s:g} s.",
                )
    died = _died_of_it(run)
    if workers := [one for one in died if (one.node, one.parent) == (process.node, process.pid)]:
        return (
            "workers-killed",
            f"{name} killed {len(workers)} of the worker processes of {who}, which then could not "
            "finish its step and save.",
        )
    if pipe := [one for one in died if one.command.startswith("tee ")]:
        return (
            "output-pipe",
            f"{described(pipe[0])}, which read its output, died of {name}, and {who} ended without "
            "a save.",
        )
    after = "" if lived_s is None else f", and it ended {lived_s:.1f} s after SIGTERM"
    return "not-saved", f"{who} handles {name}, but no save was seen{after}."


def _is_torn(trial: Trial, run: DrillRun, handover: _Handover) -> bool:
    """Whether a signal in the middle of a save has cost the job that save, or an older one."""
    after, last = trial.after, run.saves[-1] if run.saves else None
    if after is None or not (handover.lost or (after.ended and after.first_step is None)):
        return False
    if run.again_s is not None:
        return not any(save.ended_s and save.ended_s > run.again_s for save in run.saves)
    if last is None or last.ended_s is not None or not _since(last.began_s, run.since_s):
        return False
    # The first signal proves nothing about the save if the checkpoint before it is still there.
    began = handover.began.resumed_step if handover.began else None
    return (handover.saved_step or 0) > (began or 0)


def _at_the_next_start(
    trial: Trial, after: DrillRun, handover: _Handover, on_any_node: bool
) -> Iterator[Found]:
    if after.ended and after.first_step is None:
        yield (
            "did-not-come-back",
            f"After the preemption the job started again{_elsewhere(trial, after)} and ended as "
            f"{after.ended} (exit code {after.exit_code}) without a step.",
        )
        return
    worker, began, saved = handover.worker, handover.began, handover.saved_step
    if worker is None or began is None:
        return
    begins = (began.first_step if began.every == 1 else began.resumed_step) or 0
    done = _saves_after(worker)
    is_new = bool(done) and (done[-1].step is None or done[-1].step > begins)
    saves = [
        one.step
        for run in trial.runs
        if worker.number <= run.number < began.number
        for one in _saves_after(run)
        if one.step is not None
    ]
    if handover.lost and saves and began.resumed_step == saves[-1] < max(saves):
        what = f"It saved step {max(saves)}, and then step {saves[-1]} over it."
        yield "overwritten", what
    elif (handover.lost and (is_new or (saved is not None and saved > begins))) or (
        handover.skipped and done and saved is not None
    ):
        yield _resumed_elsewhere(trial, handover, began, on_any_node)
    elif handover.lost:
        yield (
            "not-saved",
            f"The job was at step {handover.reached}, and the next start went on from step "
            f"{began.resumed_step}, the last that it had saved.",
        )


def _resumed_elsewhere(
    trial: Trial, handover: _Handover, began: DrillRun, on_any_node: bool
) -> Found:
    """Return why the next start went on from a step that was not the one saved."""
    done = _saves_after(handover.worker) if handover.worker else []
    step = done[-1].step if done else handover.saved_step
    of = "" if step is None else f" of step {step}"
    at = "" if step == handover.reached else f" at step {handover.reached}"
    where = _elsewhere(trial, began)
    scratch = not began.resumed_step
    text = f"A checkpoint{of} was saved{at}, but the next start{where} went on from " + (
        "nothing." if scratch else f"step {began.resumed_step}."
    )
    if handover.skipped:
        text += f" Steps that are never done: {handover.skipped}."
    # A start that names the step of the checkpoint has read it.
    has_read = step is not None and any(point.step == step for point in began.claimed)
    if where and not (on_any_node or has_read):
        return "other-node", text
    if scratch:
        return "resumed-from-nothing", text
    return ("steps-skipped" if handover.skipped else "resumed-earlier"), text


def _elsewhere(trial: Trial, after: DrillRun | None) -> str:
    """Return words for a start on another node than the run before it."""
    if after is None or not after.nodes:
        return ""
    earlier = [run for run in (*trial.before, *trial.runs) if run.number < after.number]
    if not earlier or set(earlier[-1].nodes) & set(after.nodes):
        return ""
    return f" on {', '.join(after.nodes[:3])}"


def _goes_on_elsewhere(trial: Trial) -> bool:
    """Whether the next start went on from a checkpoint on nodes where the job had never been."""
    earlier = {node for run in (*trial.before, *trial.runs) for node in run.nodes}
    after = trial.after
    return after is not None and bool(after.resumed_step) and earlier.isdisjoint(after.nodes)


def _about_output(earlier: Sequence[DrillRun], after: DrillRun) -> Iterator[Found]:
    if name := after.emptied.rpartition("/")[2]:
        yield "output-emptied", f"The start after the preemption emptied the job's {name}."
    before = {path for run in earlier for path in run.logs}
    still = {_without_numbers(path) for path in after.logs & before}
    for path in sorted(after.logs - before):
        form = _without_numbers(path)
        siblings = sorted(one for one in before if _without_numbers(one) == form)
        if siblings and form not in still:
            logs = f"{siblings[-1]}, and then {path}"
            yield "new-log", f"Each start writes a separate log file: {logs}."
    known = {one for run in earlier for one in run.trackers}
    for tracker in sorted({name for name, _ in known}):
        begun = {one for one in after.trackers if one[0] == tracker} - known
        if begun and not {one for one in after.trackers if one in known}:
            yield "new-tracker-run", f"Each start begins a new run in the tracker ({tracker})."


def _without_numbers(path: str) -> str:
    """Return the path without the parts that differ from start to start."""
    return re.sub(r"[0-9a-f]{8,}|\d+", "#", path)


# Facts


def _had_work(trial: Trial, run: DrillRun) -> bool:
    """Whether the run had done any work that a save could keep."""
    if run.ended:
        return False
    if run.last_step is not None and run.resumed_step is not None:
        return run.last_step > run.resumed_step
    return trial.kind is not TrialKind.START_UP and run in trial.runs[:1]


def _has_saved(trial: Trial, run: DrillRun, handover: _Handover) -> bool:
    """Whether the run saved when asked, or has lost nothing."""
    process, since_s = trainer(run), run.since_s
    # A run that has just started may have installed its handler unseen.
    is_settled = trial.kind is not TrialKind.START_UP and run is trial.runs[0]
    if is_settled and process is not None and process.on(run.told_by) is Disposition.DEFAULT:
        # A save that was done or under way when the signal came proves nothing, unless there is one
        # for each step. A program that waits for the signal has no handler, and still saves.
        steps = {save.step for save in run.saves if save.step is not None}
        done = (run.last_step or 0) - (run.resumed_step or 0)
        if not handover.lost and len(steps) >= max(3, done - 1):
            return True
        begun_s = (save.began_s for save in _saves_after(run))
        return since_s is not None and any(at_s is None or at_s >= since_s for at_s in begun_s)
    return bool(_saves_after(run)) or not (handover.lost and handover.worker is run)


def _saves_after(run: DrillRun) -> list[Save]:
    """Return the saves that ended after the run was asked to save."""
    since_s = run.since_s
    if since_s is None:
        return []
    return [save for save in run.saves if save.ended_s is not None and save.ended_s > since_s]


def _killed(trial: Trial, run: DrillRun, kill_wait_s: float) -> Process | None:
    """Return the process that existed until SIGKILL: the one that trains, or the innermost.

    Processes that even SIGKILL did not end are reported as survivors.
    """
    survived = {(one.node, one.pid) for one in trial.survivors}
    late = [
        one
        for one in run.processes
        if (lived_s := _since(run.term_s, one.gone_s)) is not None
        and lived_s >= kill_wait_s - 1.0
        and not run.is_orphan(one)
        and (one.node, one.pid) not in survived
    ]
    trains = trainer(run)
    if trains in late:
        return trains
    # srun waits for the task that stays.
    return max(
        late,
        key=lambda one: (not _is_srun(one), len(_ancestors(run, one)), one.cpu_s),
        default=None,
    )


def _died_of_it(run: DrillRun) -> list[Process]:
    """Return the processes that died of the signal."""
    sent_s, told_s = _sent_s(run), run.told_by_s
    if sent_s is None or told_s is None:
        return []
    return [
        one
        for one in run.processes
        if one.on(run.told_by) is Disposition.DEFAULT
        and one.gone_s is not None
        and sent_s <= one.gone_s <= told_s + AT_ONCE_S
    ]


def _sent_s(run: DrillRun) -> float | None:
    """Return the earliest time at which a process can have died of the signal."""
    if run.told_by_s is None:
        return None
    return (run.told_by_s if run.asked else min(run.told_by_s, run.since_s or run.told_by_s)) - 0.1


def trainer(run: DrillRun) -> Process | None:
    """Return the process that trains: the one that reports; otherwise the innermost of the programs
    that have used most CPU time."""
    reporting = [one for one in run.processes if one.reports]
    if reporting:
        return max(reporting, key=lambda one: one.cpu_s)
    sent_s = _sent_s(run)
    programs = [
        one
        for one in run.processes
        if not (_is_fork(run, one) or _is_srun(one))
        and (sent_s is None or one.gone_s is None or one.gone_s > sent_s)
    ]
    most_s = max((one.cpu_s for one in programs), default=0.0)
    busy = [one for one in programs if one.cpu_s >= LIKELY_TRAINS * most_s]
    # A `sleep` that a shell waits for uses no CPU time at all.
    return max(
        busy, key=lambda one: (one.cpu_s and len(_ancestors(run, one)), one.cpu_s), default=None
    )


def _is_srun(process: Process) -> bool:
    return process.command.split()[:1] == ["srun"]


def _ancestors(run: DrillRun, process: Process) -> list[Process]:
    """Return the process's ancestors in the job, the nearest first."""
    by_pid = {(one.node, one.pid): one for one in reversed(run.processes)}
    found: list[Process] = []
    above = by_pid.get((process.node, process.parent))
    while above is not None and above not in found:
        found.append(above)
        above = by_pid.get((above.node, above.parent))
    return found


def _is_fork(run: DrillRun, process: Process) -> bool:
    """Whether it is a forked copy of its parent, like the workers of a data loader."""
    above = _ancestors(run, process)[:1]
    return any(process.command == one.command for one in above) or bool(
        above and "multiprocessing" in process.command
    )


def _since(from_s: float | None, to_s: float | None) -> float | None:
    return None if from_s is None or to_s is None else max(0.0, to_s - from_s)


# What a trial without a cause still does not show


def _what_is_unknown(trial: Trial, handover: _Handover, unit: str) -> str:
    """Return why a trial without a cause still does not prove success; "" if it does."""
    after = trial.after
    if after is None:
        return "the job was not seen to start again"
    unseen = [run for run in (*trial.runs[:1], after) if run.last_step is None]
    if trial.kind is TrialKind.START_UP:
        unseen = [run for run in unseen if run is after]
    if unseen:
        lacks_file = any(not run.has_progress_file for run in unseen)
        if lacks_file and any(run.has_progress_file for run in (*trial.before, *trial.runs)):
            return "a start got no progress file: slurmd has not run its prolog"
        moment = "after the next start" if unseen[0] is after else "before the signal"
        show = "let it report (slurm_tiresias.job), or print its steps"
        return f"no step was seen {moment}: {show}"
    if handover.reached is None:
        return ""
    if handover.skipped:
        return (
            f"it went on from step {after.resumed_step}, but no save after step "
            f"{handover.reached} was announced with its step"
        )
    if trial.kind is TrialKind.START_UP and not any(_had_work(trial, run) for run in trial.runs):
        return ""
    if (after.every != 1 or unit != "step") and not _is_matched(handover, after):
        shown = "epochs" if unit != "step" else f"steps, one in {after.every or 'several'},"
        return (
            f"only {shown} were seen, so some between two may be lost: print the step at each "
            "save and at the start"
        )
    return ""


def _is_matched(handover: _Handover, after: DrillRun) -> bool:
    """Whether the next run went on from the save that the signal has caused."""
    saves = _saves_after(handover.worker) if handover.worker else []
    step = saves[-1].step if saves else None
    if step is None or after.first_step is None:
        return False
    if after.claimed_step is not None:
        return abs(after.claimed_step - step) <= 1
    return after.every == 1 and step <= after.first_step <= step + 1


def _what_is_not_tested(trial: Trial) -> str:
    """Return what a trial that went well has not tested; "" if all of it."""
    if trial.kind is TrialKind.START_UP and any(_had_work(trial, run) for run in trial.runs[:1]):
        return "it had begun its steps before the signal came"
    if trial.kind is TrialKind.SAVE and all(run.again_s is None for run in trial.runs):
        return "its save was too short, or not seen, for a second signal in the middle of it"
    return ""


# Words


def signal_name(number: int) -> str:
    """Return the name of a signal, such as SIGTERM."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


def described(process: Process) -> str:
    """Return a process as shown to people: its shortened command and its pid."""
    return f"{short_command(process.command)} (pid {process.pid})"


def short_command(command: str) -> str:
    """Return the first words of a command, without the folders of its files."""
    words = [word.rpartition("/")[2] for word in command.split()[:3]]
    return " ".join(words)[:40] or "a process"
