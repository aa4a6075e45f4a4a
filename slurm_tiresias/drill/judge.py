"""Judges the observed preemptions of a job: what is wrong, and what to change. Has no side
effects."""

from __future__ import annotations

import enum
import re
import signal as signals
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from slurm_tiresias.drill.counters import MOST_STEP
from slurm_tiresias.drill.observed import (
    Disposition,
    Drill,
    Kind,
    Process,
    Run,
    Save,
    Survivor,
    Trial,
)
from slurm_tiresias.drill.scale import in_steps

PAGE = "docs/how-to/save-and-resume.md"
SIGNALS = f"{PAGE}#the-batch-script"
SAVING = f"{PAGE}#with-the-library"
OUTPUT = f"{PAGE}#the-batch-script"
TRACKERS = f"{PAGE}#weights--biases-mlflow"
REHEARSAL = f"{PAGE}#rehearse-it"
PYTORCH = f"{PAGE}#pytorch"

AT_ONCE_S = 1.0
"""A process that is gone this soon after a signal had no handler for it."""

TORCHRUN_S = 30.0
NEAR_S = 1.5
LAUNCHER_WAITS_S = 2.5
"""A launcher that stops its workers gives them at least this long; a program that simply exits
needs less."""

LIKELY_TRAINS = 0.5
"""Of nested programs, the innermost with at least this share of the highest CPU time is
training."""


class Code(enum.StrEnum):
    """The kinds of problems."""

    NO_HANDLER = "no-handler"
    HANDLER_IN_PARENT_ONLY = "handler-in-parent-only"
    NOT_REACHED = "not-reached"
    IGNORED = "ignored"
    WORKERS_KILLED = "workers-killed"
    LAUNCHER_KILLED = "launcher-killed"
    SAVE_TOO_LONG = "save-too-long"
    STAYED = "stayed"
    SAVE_TORN = "save-torn"
    NOT_SAVED = "not-saved"
    ENDED_BY_SIGNAL = "ended-by-signal"
    ENDED_TOO_SOON = "ended-too-soon"
    RESUMED_FROM_NOTHING = "resumed-from-nothing"
    RESUMED_EARLIER = "resumed-earlier"
    OTHER_NODE = "other-node"
    DELETED_FIRST = "deleted-first"
    OVERWRITTEN = "overwritten"
    STEPS_SKIPPED = "steps-skipped"
    DID_NOT_COME_BACK = "did-not-come-back"
    OUTPUT_EMPTIED = "output-emptied"
    NEW_LOG = "new-log"
    NEW_TRACKER_RUN = "new-tracker-run"
    SURVIVOR = "survivor"


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem, how to solve it, and where that is explained."""

    code: Code
    what: str
    change: str
    page: str


class Outcome(enum.StrEnum):
    """The result of a trial."""

    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"
    NOT_TESTED = "not tested"
    """The job kept its steps, but the signal did not hit what the trial is about."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The observations of a trial. Steps and seconds are None if they are unknown."""

    kind: Kind
    outcome: Outcome
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
    findings: tuple[Finding, ...]
    unit: str = "step"
    """What is counted: steps, or epochs."""


def judge_all(drill: Drill) -> tuple[Verdict, ...]:
    """Return the verdict on each trial. Problems with files are reported once."""
    told: set[Code] = set()
    verdicts = []
    drill = in_steps(drill)
    found = [(trial, _handover(trial)) for trial in drill.trials]
    # A job that goes wrong on the same node too, or goes on at its first start on another one, does
    # not go wrong because of the node.
    on_any_node = any(
        not _elsewhere(trial, one.began) if one.lost or one.skipped else _goes_on_elsewhere(trial)
        for trial, one in found
    )
    for trial in drill.trials:
        kept = frozenset(told)
        verdicts.append(judge(trial, drill.kill_wait_s, kept, drill.unit, on_any_node=on_any_node))
        told |= {one.code for one in verdicts[-1].findings if one.code in ONCE}
    return tuple(verdicts)


ONCE = frozenset({Code.OUTPUT_EMPTIED, Code.NEW_LOG, Code.NEW_TRACKER_RUN, Code.SURVIVOR})
"""Findings that are the same for every preemption of the job."""


@dataclass(frozen=True, slots=True)
class _Handover:
    """Where the starts after a trial's runs began, compared with what the runs had reached."""

    reached: int | None = None
    """The last step before the last start."""
    lost: int = 0
    skipped: int = 0
    worker: Run | None = None
    """The run that did those steps."""
    began: Run | None = None
    """The run that began earlier, or later, than it should."""
    saved_step: int | None = None
    """The last checkpoint that was announced with its step, and not yet lost by an earlier
    trial."""


def judge(
    trial: Trial,
    kill_wait_s: float,
    told: frozenset[Code] = frozenset(),
    unit: str = "step",
    *,
    on_any_node: bool = False,
) -> Verdict:
    """Return the verdict on one trial; findings in ``told`` are left out.

    It passes only if no step was lost or skipped, and SIGKILL ended nothing. What was not seen is
    unknown. ``on_any_node``: other trials show that the node makes no difference.
    """
    handover = _handover(trial)
    all_findings = _distinct(_findings(trial, handover, kill_wait_s, on_any_node))
    findings = tuple(one for one in all_findings if one.code not in told)
    why = "" if findings else trial.trouble or _what_is_unknown(trial, handover, unit)
    outcome = Outcome.FAILED if findings else Outcome.UNKNOWN if why else Outcome.PASSED
    if outcome is Outcome.PASSED and (why := _what_is_not_tested(trial)):
        outcome = Outcome.NOT_TESTED
    run, after = trial.runs[0] if trial.runs else Run(0), trial.after
    save = _saved_after(run)
    is_lost = _had_work(trial, run) and not _has_saved(trial, run, handover)
    return Verdict(
        kind=trial.kind,
        outcome=outcome,
        why_unknown=why,
        told_step=run.last_step,
        saved=True if save else False if is_lost else None,
        save_s=_since(run.told_s, _saves_after(run)[0].ended_s) if save else None,
        asked=run.asked,
        answered=run.answered_s is not None,
        requeued_s=_since(run.signal_s, run.requeued_s),
        saved_step=save.step if save else None,
        left_s=_since(run.term_s, run.last_gone_s),
        resumed_step=after.resumed_step if after else None,
        first_step_s=_since(after.started_s, after.first_step_s) if after else None,
        steps_redone=_redone(handover) if after and after.first_step is not None else None,
        findings=findings,
        unit=unit,
    )


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
                most = max(reached, saved or 0)
                done = (run.first_step or 0) - (run.every or MOST_STEP)
                if run.counts_done:
                    done = run.claimed_step or 0
                skipped = max(0, done - most)
                if runs[index - 1].last_step is None:
                    skipped = 0
                lost = max(0, reached - begins)
                if lost + skipped >= found.lost + found.skipped:
                    found = replace(last, lost=lost, skipped=skipped, began=run)
            kept = None if saved is None else min(saved, begins)
            last = replace(last, reached=None, saved_step=kept)
        last = _worked(last, run)
    return found if found.began else last


def _redone(handover: _Handover) -> int:
    began = handover.began.resumed_step if handover.began else None
    return max(0, (handover.reached or 0) - (began or 0)) if handover.lost else 0


def _worked(last: _Handover, run: Run) -> _Handover:
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


def trainer(run: Run) -> Process | None:
    """Return the process that trains: the one that reports; otherwise the innermost of the programs
    that have used most CPU time."""
    reporting = [one for one in run.processes if one.reports]
    if reporting:
        return max(reporting, key=lambda one: one.cpu_s)
    programs = [
        one
        for one in run.processes
        if not _is_fork(run, one) and not _is_srun(one) and _was_there(run, one)
    ]
    most_s = max((one.cpu_s for one in programs), default=0.0)
    busy = [one for one in programs if one.cpu_s >= LIKELY_TRAINS * most_s]
    # A `sleep` that a shell waits for uses no CPU time at all.
    return max(
        busy, key=lambda one: (one.cpu_s and len(_ancestors(run, one)), one.cpu_s), default=None
    )


def _findings(
    trial: Trial, handover: _Handover, kill_wait_s: float, on_any_node: bool
) -> Iterator[Finding]:
    ended = any(run.ended for run in trial.runs)
    torn = not ended and any(_is_torn(trial, run, handover) for run in trial.runs)
    torn = torn and not any(_killed(trial, run, kill_wait_s) for run in trial.runs)
    found: list[Finding] = []
    for run in trial.runs:
        late = _killed(trial, run, kill_wait_s)
        if run.ended:
            found.append(_ended_itself(run))
        elif late and run.deleted and handover.lost:
            found.append(_deleted_first(run, late, kill_wait_s))
        elif late:
            found.append(_stayed(run, late, kill_wait_s))
        elif _had_work(trial, run) and not _has_saved(trial, run, handover) and not torn:
            found.append(_not_saved(run, kill_wait_s))
    if torn:
        found.append(TORN)
    yield from found
    yield from _about_the_next_run(trial, handover, {one.code for one in found}, on_any_node)
    yield from _about_survivors(trial.survivors)


TORN = Finding(
    Code.SAVE_TORN,
    "A signal interrupted the save.",
    "Let the handler only set a flag, and save between two steps: a signal during a save then does "
    "not end it. Write the checkpoint beside the old one and rename it.",
    SAVING,
)


def _ended_itself(run: Run) -> Finding:
    if run.finished:
        return Finding(
            Code.ENDED_TOO_SOON,
            "The job did all of its steps before its requeue. Slurm does not requeue such a job.",
            "Give it more steps for the drill, so that it runs for several minutes.",
            REHEARSAL,
        )
    name = signal_name(run.signal or run.told_by)
    process = trainer(run)
    dies = process is not None and process.on(run.told_by) is Disposition.DEFAULT
    if process is not None and dies and not run.asked and _saved_after(run) is None:
        return Finding(
            Code.ENDED_BY_SIGNAL,
            f"The job was over before its requeue: {described(process)} died of {name}, and the "
            f"job ended as {run.ended}. Slurm does not requeue such a job.",
            f"Handle {name} by saving and continuing, and ignore it until the program handles it: "
            + (
                f"srun bash -c 'trap \"\" {name[3:]}; exec python3 ...', as srun keeps no trap."
                if _is_task_of_srun(run, process)
                else f"write `trap '' {name[3:]}` into the script before the program."
            ),
            SIGNALS,
        )
    return Finding(
        Code.ENDED_TOO_SOON,
        f"The job ended as {run.ended} after {name}, before its requeue. Slurm does not requeue "
        "such a job.",
        f"Save on {name} and continue; exit only on SIGTERM.",
        SIGNALS,
    )


def _not_saved(run: Run, kill_wait_s: float) -> Finding:
    """Return why a run that was asked to save has not saved."""
    process = trainer(run)
    if process is None:
        return _plainly_not_saved("The job did not save.")
    name, does = signal_name(run.told_by), process.on(run.told_by)
    if not run.reaches(process):
        return _not_reached(process, name)
    if does is Disposition.DEFAULT:
        return _has_no_handler(run, process, name)
    return _handled_in_vain(run, process, kill_wait_s)


def _stayed(run: Run, process: Process, kill_wait_s: float) -> Finding:
    """Return why SIGKILL had to end a process."""
    name, does = signal_name(run.told_by), process.on(run.told_by)
    if not run.reaches(process):
        return _not_reached(process, name)
    if does is Disposition.IGNORED:
        return Finding(
            Code.IGNORED,
            f"{described(process)} ignores {name}, and was killed {kill_wait_s:g} s later.",
            "Save on it, with slurm_tiresias.job or a custom handler.",
            SAVING,
        )
    after = f"SIGKILL ended {described(process)} {kill_wait_s:g} s after SIGTERM (KillWait)"
    if dead := [one for one in _died_of_it(run) if one.command == process.command]:
        return Finding(
            Code.NO_HANDLER,
            f"{after}: {described(dead[0])} has no handler for {name} and died of it, and the "
            "others may have waited for it.",
            "Handle it in every process of the training, and let all of them save after the same "
            "step: agree=any_rank of slurm_tiresias.job.torch.",
            PYTORCH,
        )
    if any(save.ended_s is None for save in run.saves):
        return Finding(
            Code.SAVE_TOO_LONG,
            f"The save took longer than the grace: {after}, in the middle of it.",
            "Save faster, write from several processes, or ask for time before it: "
            "--tiresias-checkpoint=USR1@60. The site can raise KillWait.",
            SIGNALS,
        )
    saved = _saved_after(run) is not None
    if does is Disposition.BLOCKED and not saved:
        return Finding(
            Code.STAYED,
            f"{after}: it has blocked {name}, and no save of it was seen.",
            "Take the signal between two steps. What `tiresias-job run` starts learns of it only "
            "from slurm_tiresias.job.",
            SAVING,
        )
    return Finding(
        Code.STAYED,
        f"{after}, {'long after its save' if saved else 'and no save of it was seen'}.",
        "End all threads and child processes once it has saved."
        if saved
        else "Check between two steps whether the job must leave, also in warm-up, evaluation and "
        "compilation; a save must be done within KillWait.",
        SAVING,
    )


def _deleted_first(run: Run, process: Process, kill_wait_s: float) -> Finding:
    return Finding(
        Code.DELETED_FIRST,
        f"{run.deleted.rpartition('/')[2]} was deleted before the new checkpoint was complete, and "
        f"SIGKILL ended {described(process)} {kill_wait_s:g} s after SIGTERM (KillWait).",
        "Write the new checkpoint beside the old one and rename it, and delete none before. A save "
        "must be done within KillWait.",
        SAVING,
    )


def _not_reached(process: Process, name: str) -> Finding:
    return Finding(
        Code.NOT_REACHED,
        f"{name} did not reach {described(process)}: here Slurm sends it only to the script's "
        "own process and to the tasks of srun.",
        "End the script with `exec`: exec python3 ..., or exec srun python3 ....",
        SIGNALS,
    )


def _has_no_handler(run: Run, process: Process, name: str) -> Finding:
    handling = [
        one
        for one in _ancestors(run, process)
        if one.on(run.told_by) in (Disposition.HANDLER, Disposition.BLOCKED)
    ]
    if handling:
        return Finding(
            Code.HANDLER_IN_PARENT_ONLY,
            f"{described(handling[0])} handles {name}, but {described(process)}, which trains, "
            "does not, and was killed by it.",
            "Handle it in the program that trains and saves, not in what starts it.",
            SAVING,
        )
    return Finding(
        Code.NO_HANDLER,
        f"{described(process)} has no handler for {name}, and was killed by it without a save.",
        "Make the program save on it: for step in slurm_tiresias.job.steps(...) does, or write a "
        "handler that sets a flag.",
        SAVING,
    )


def _handled_in_vain(run: Run, process: Process, kill_wait_s: float) -> Finding:
    """Return why a process that handles the signal has not saved."""
    name, lived_s = signal_name(run.told_by), _since(run.term_s, process.gone_s)
    if launcher := _launcher_that_killed(run, process, lived_s):
        torchrun = lived_s is not None and abs(lived_s - TORCHRUN_S) <= NEAR_S
        waits = " (torchrun waits 30 s)" if torchrun else ""
        return Finding(
            Code.LAUNCHER_KILLED,
            f"The launcher, {described(launcher)}, ended its workers {lived_s:.0f} s after "
            f"SIGTERM{waits}, before they had saved; Slurm would have waited {kill_wait_s:g} s.",
            "Start it with `tiresias-job run -- torchrun ...`: the launcher then gets no signal, "
            "and the processes still save.",
            SAVING,
        )
    died = _died_of_it(run)
    if workers := [one for one in died if (one.node, one.parent) == (process.node, process.pid)]:
        return Finding(
            Code.WORKERS_KILLED,
            f"{name} killed {len(workers)} of the worker processes of "
            f"{described(process)}, which then could not finish its step and save.",
            "Let data-loader workers ignore SIGTERM (importing slurm_tiresias.job.torch does), "
            "and save without them.",
            PYTORCH,
        )
    if pipe := [one for one in died if one.command.startswith("tee ")]:
        return Finding(
            Code.NOT_SAVED,
            f"{described(pipe[0])}, which read its output, died of {name}, and "
            f"{described(process)} ended without a save.",
            "Redirect the output with >> instead of a pipe, so that it can still print.",
            OUTPUT,
        )
    after = "" if lived_s is None else f", and it ended {lived_s:.1f} s after SIGTERM"
    return _plainly_not_saved(f"{described(process)} handles {name}, but no save was seen{after}.")


def _plainly_not_saved(what: str) -> Finding:
    change = (
        "Write a checkpoint when the signal comes, before the program ends, and load the newest at "
        "the start."
    )
    return Finding(Code.NOT_SAVED, what, change, SAVING)


def _launcher_that_killed(run: Run, process: Process, lived_s: float | None) -> Process | None:
    """Return the launcher that stopped the process: it handles SIGTERM itself, and outlived it."""
    if lived_s is None or lived_s < LAUNCHER_WAITS_S or process.gone_s is None:
        return None
    for one in _ancestors(run, process):
        outlived = one.gone_s is None or one.gone_s > process.gone_s
        if outlived and one.on(signals.SIGTERM) in (Disposition.HANDLER, Disposition.BLOCKED):
            return one
    return None


def _is_torn(trial: Trial, run: Run, handover: _Handover) -> bool:
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


def _about_the_next_run(
    trial: Trial, handover: _Handover, found: set[Code], on_any_node: bool
) -> Iterator[Finding]:
    after = trial.after
    if after is None:
        return
    explained = found & {Code.SAVE_TORN, Code.DELETED_FIRST}
    if after.ended and after.first_step is None:
        if not explained and not any(run.finished for run in trial.runs):
            yield Finding(
                Code.DID_NOT_COME_BACK,
                f"After the preemption the job started again{_elsewhere(trial, after)} and ended "
                f"as {after.ended} (exit code {after.exit_code}) without a step.",
                "See the last lines of its output: a start must handle anything that the previous "
                "one left, and names and GPUs of another node.",
                SAVING,
            )
        return
    worker, began, saved = handover.worker, handover.began, handover.saved_step
    if worker is not None and began is not None and not explained:
        begins = (began.first_step if began.every == 1 else began.resumed_step) or 0
        save = _saved_after(worker)
        is_new = save is not None and (save.step is None or save.step > begins)
        saves = [
            one.step
            for run in trial.runs
            if worker.number <= run.number < began.number
            for one in _saves_after(run)
            if one.step is not None
        ]
        if handover.lost and saves and began.resumed_step == saves[-1] < max(saves):
            yield Finding(
                Code.OVERWRITTEN,
                f"It saved step {max(saves)}, and then step {saves[-1]} over it.",
                "Save only after the checkpoint is loaded, and only in the process that trains: "
                "forked workers inherit its signal handlers.",
                SAVING,
            )
        elif (handover.lost and (is_new or (saved is not None and saved > begins))) or (
            handover.skipped and save is not None and saved is not None
        ):
            yield _resumed_elsewhere(trial, handover, began, on_any_node)
        elif handover.lost and not found:
            yield _plainly_not_saved(
                f"The job was at step {handover.reached}, and the next start went on from step "
                f"{began.resumed_step}, the last that it had saved."
            )
    yield from _about_output(trial, after)


def _elsewhere(trial: Trial, after: Run | None) -> str:
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


def _resumed_elsewhere(trial: Trial, handover: _Handover, began: Run, on_any_node: bool) -> Finding:
    """Return why the next start went on from a step that was not the one saved."""
    save = _saved_after(handover.worker) if handover.worker else None
    step = save.step if save else handover.saved_step
    of = "" if step is None else f" of step {step}"
    at = "" if step == handover.reached else f" at step {handover.reached}"
    where = _elsewhere(trial, began)
    scratch = not began.resumed_step
    text = f"A checkpoint{of} was saved{at}, but the next start{where} went on from " + (
        "nothing." if scratch else f"step {began.resumed_step}."
    )
    if handover.skipped:
        text += f" Steps that are never done: {handover.skipped}."
    if where and not on_any_node:
        change = (
            "Keep checkpoints on a file system that all nodes see, not in /tmp, $TMPDIR or local "
            "scratch, under the same name at each start."
        )
        return Finding(Code.OTHER_NODE, text, change, SAVING)
    if scratch:
        change = (
            "Look for a checkpoint first, in the same folder (not $TMPDIR) and under the same name "
            "(not with the time) at each start."
        )
        return Finding(Code.RESUMED_FROM_NOTHING, text, change, SAVING)
    code = Code.STEPS_SKIPPED if handover.skipped else Code.RESUMED_EARLIER
    change = "See that each checkpoint holds the step at which it was saved, and load the newest."
    return Finding(code, text, change, SAVING)


def _about_output(trial: Trial, after: Run) -> Iterator[Finding]:
    if name := after.emptied.rpartition("/")[2]:
        yield Finding(
            Code.OUTPUT_EMPTIED,
            f"The start after the preemption emptied the job's {name}.",
            "Submit with --open-mode=append, and redirect to a log with >>.",
            OUTPUT,
        )
    earlier = (*trial.before, *trial.runs)
    if new := _new_log(earlier, after):
        yield Finding(
            Code.NEW_LOG,
            f"Each start writes a separate log file: {new[0]}, and then {new[1]}.",
            "Name the log after SLURM_JOB_ID, not after the time or the process, and append to it.",
            OUTPUT,
        )
    known = {one for run in earlier for one in run.trackers}
    for tracker in sorted({name for name, _ in known}):
        begun = {one for one in after.trackers if one[0] == tracker} - known
        if begun and not {one for one in after.trackers if one in known}:
            yield Finding(
                Code.NEW_TRACKER_RUN,
                f"Each start begins a new run in the tracker ({tracker}).",
                "Give it the id of the run that the job had: run_id(folder) of "
                "slurm_tiresias.job.tracker.",
                TRACKERS,
            )
            return


def _new_log(earlier: Sequence[Run], after: Run) -> tuple[str, str] | None:
    """Return a log that is no longer written, and the one that replaced it."""
    before = {path for run in earlier for path in run.logs}
    still = {_without_numbers(path) for path in after.logs & before}
    for path in sorted(after.logs - before):
        form = _without_numbers(path)
        siblings = sorted(one for one in before if _without_numbers(one) == form)
        if siblings and form not in still:
            return siblings[-1], path
    return None


def _without_numbers(path: str) -> str:
    """Return the path without the parts that differ from start to start."""
    return re.sub(r"[0-9a-f]{8,}|\d+", "#", path)


def _about_survivors(survivors: tuple[Survivor, ...]) -> Iterator[Finding]:
    if not survivors:
        return
    one = survivors[0]
    others = f" and {len(survivors) - 1} more" if len(survivors) > 1 else ""
    yield Finding(
        Code.SURVIVOR,
        f"After the job had left {one.node}, one of its processes was still running: "
        f"{short_command(one.command)} (pid {one.pid}){others}.",
        "Start nothing with setsid, nohup or as a daemon, and end all child processes before the "
        "program exits.",
        SIGNALS,
    )


# Facts


def _had_work(trial: Trial, run: Run) -> bool:
    """Whether the run had done any work that a save could keep."""
    if run.ended:
        return False
    if run.last_step is not None and run.resumed_step is not None:
        return run.last_step > run.resumed_step
    return trial.kind is not Kind.START_UP and run in trial.runs[:1]


def _has_saved(trial: Trial, run: Run, handover: _Handover) -> bool:
    """Whether the run saved when asked, or has lost nothing."""
    process, since_s = trainer(run), run.since_s
    # A run that has just started may have installed its handler unseen.
    is_settled = trial.kind is not Kind.START_UP and run is trial.runs[0]
    if is_settled and process is not None and process.on(run.told_by) is Disposition.DEFAULT:
        # A save that was done or under way when the signal came proves nothing, unless there is one
        # for each step. A program that waits for the signal has no handler, and still saves.
        steps = {save.step for save in run.saves if save.step is not None}
        done = (run.last_step or 0) - (run.resumed_step or 0)
        if not handover.lost and len(steps) >= max(3, done - 1):
            return True
        begun_s = (save.began_s for save in _saves_after(run))
        return since_s is not None and any(at_s is None or at_s >= since_s for at_s in begun_s)
    return _saved_after(run) is not None or not (handover.lost and handover.worker is run)


def _killed(trial: Trial, run: Run, kill_wait_s: float) -> Process | None:
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


def _is_srun(process: Process) -> bool:
    return process.command.split()[:1] == ["srun"]


def _died_of_it(run: Run) -> list[Process]:
    """Return the processes that died of the signal."""
    told_s = run.told_by_s
    if told_s is None:
        return []
    sent_s = told_s - 0.1 if run.asked else min(told_s - 0.1, run.since_s or told_s)
    return [
        one
        for one in run.processes
        if one.on(run.told_by) is Disposition.DEFAULT
        and one.gone_s is not None
        and sent_s <= one.gone_s <= told_s + AT_ONCE_S
    ]


def _saved_after(run: Run) -> Save | None:
    """Return the last save that ended after the run was asked to save."""
    done = _saves_after(run)
    return done[-1] if done else None


def _saves_after(run: Run) -> list[Save]:
    since_s = run.since_s
    if since_s is None:
        return []
    return [save for save in run.saves if save.ended_s is not None and save.ended_s > since_s]


def _what_is_unknown(trial: Trial, handover: _Handover, unit: str) -> str:
    """Return why a trial without findings still does not prove success; "" if it does."""
    after, earlier = trial.after, (*trial.before, *trial.runs)
    if after is None:
        return "the job was not seen to start again"
    show = "let it report (slurm_tiresias.job), or print its steps"
    unseen = [run for run in (*trial.runs[:1], after) if run.last_step is None]
    if trial.kind is Kind.START_UP:
        unseen = [run for run in unseen if run is after]
    if unseen:
        if any(not run.has_progress_file for run in unseen) and any(
            run.has_progress_file for run in earlier
        ):
            return "a start got no progress file: slurmd has not run its prolog"
        moment = "after the next start" if unseen[0] is after else "before the signal"
        return f"no step was seen {moment}: {show}"
    if handover.reached is None:
        return ""
    if handover.skipped:
        return (
            f"it went on from step {after.resumed_step}, but no save after step "
            f"{handover.reached} was announced with its step"
        )
    if trial.kind is Kind.START_UP and not any(_had_work(trial, run) for run in trial.runs):
        return ""
    if (after.every != 1 or unit != "step") and not _is_matched(handover, after):
        shown = "epochs" if unit != "step" else f"steps, one in {after.every or 'several'},"
        return (
            f"only {shown} were seen, so some between two may be lost: print the step at each "
            "save and at the start"
        )
    return ""


def _is_matched(handover: _Handover, after: Run) -> bool:
    """Whether the next run went on from the save that the signal has caused."""
    save = _saved_after(handover.worker) if handover.worker else None
    if save is None or save.step is None or after.first_step is None:
        return False
    if after.claimed_step is not None:
        return abs(after.claimed_step - save.step) <= 1
    return after.every == 1 and save.step <= after.first_step <= save.step + 1


def _what_is_not_tested(trial: Trial) -> str:
    """Return what a trial that went well has not tested; "" if all of it."""
    if trial.kind is Kind.START_UP and any(_had_work(trial, run) for run in trial.runs[:1]):
        return "it had begun its steps before the signal came"
    if trial.kind is Kind.SAVE and all(run.again_s is None for run in trial.runs):
        return "its save was too short, or not seen, for a second signal in the middle of it"
    return ""


def _was_there(run: Run, process: Process) -> bool:
    """Whether the process existed when the run was told to save or to leave."""
    told_s = run.told_by_s
    if told_s is None or process.gone_s is None:
        return True
    return process.gone_s > (told_s if run.asked else min(told_s, run.since_s or told_s)) - 0.1


def _parent(run: Run, process: Process) -> Process | None:
    at = (process.node, process.parent)
    return next((one for one in run.processes if (one.node, one.pid) == at), None)


def _ancestors(run: Run, process: Process) -> list[Process]:
    """Return the process's ancestors in the job, the nearest first."""
    found: list[Process] = []
    above = _parent(run, process)
    while above is not None and above not in found:
        found.append(above)
        above = _parent(run, above)
    return found


def _is_fork(run: Run, process: Process) -> bool:
    """Whether it is a forked copy of its parent, like the workers of a data loader."""
    above = _parent(run, process)
    if above is None:
        return False
    return process.command == above.command or "multiprocessing" in process.command


def _is_task_of_srun(run: Run, process: Process) -> bool:
    """Whether srun started it, rather than the batch script."""
    top = (_ancestors(run, process) or [process])[-1]
    return top.direct and any(
        one.direct and one is not top and _is_srun(one) for one in run.processes
    )


def _since(from_s: float | None, to_s: float | None) -> float | None:
    return None if from_s is None or to_s is None else max(0.0, to_s - from_s)


def _distinct(findings: Iterator[Finding]) -> list[Finding]:
    by_code: dict[Code, Finding] = {}
    for one in findings:
        by_code.setdefault(one.code, one)
    return list(by_code.values())


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
