"""Judges the observed preemptions of a job: what is wrong, and what to change. Has no side
effects."""

from __future__ import annotations

import enum
import re
import signal as signals
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Verdict:
    """The observations of a trial. Steps and seconds are None if they are unknown."""

    kind: Kind
    outcome: Outcome
    why_unknown: str
    """Why it is unknown whether the trial passed; "" if it is known."""
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


def judge_all(drill: Drill) -> tuple[Verdict, ...]:
    """Return the verdict on each trial. Problems with files are reported once."""
    told: set[Code] = set()
    verdicts = []
    for trial in drill.trials:
        verdicts.append(judge(trial, drill.kill_wait_s, frozenset(told)))
        told |= {one.code for one in verdicts[-1].findings if one.code in ONCE}
    return tuple(verdicts)


ONCE = frozenset({Code.OUTPUT_EMPTIED, Code.NEW_LOG, Code.NEW_TRACKER_RUN, Code.SURVIVOR})
"""Findings that are the same for every preemption of the job."""


def judge(trial: Trial, kill_wait_s: float, told: frozenset[Code] = frozenset()) -> Verdict:
    """Return the verdict on one trial; findings in ``told`` are left out."""
    findings = tuple(
        one for one in _distinct(_findings(trial, kill_wait_s)) if one.code not in told
    )
    why_unknown = "" if findings else trial.trouble or _what_is_unknown(trial)
    outcome = Outcome.FAILED if findings else Outcome.UNKNOWN if why_unknown else Outcome.PASSED
    run = trial.runs[0] if trial.runs else Run(0)
    save = _saved_after(run)
    return Verdict(
        kind=trial.kind,
        outcome=outcome,
        why_unknown=why_unknown,
        told_step=run.last_step,
        saved=_has_saved(trial, run) if _had_work(trial, run) else None,
        save_s=_since(run.told_s, _saves_after(run)[0].ended_s) if save else None,
        asked=run.asked,
        answered=run.answered_s is not None,
        requeued_s=_since(run.signal_s, run.requeued_s),
        saved_step=save.step if save else None,
        left_s=_since(run.term_s, run.last_gone_s),
        resumed_step=trial.after.resumed_step if trial.after else None,
        first_step_s=_since(trial.after.started_s, trial.after.first_step_s)
        if trial.after
        else None,
        steps_redone=_redone(trial),
        findings=findings,
    )


def trainer(run: Run) -> Process | None:
    """Return the process that trains: the one that reports; otherwise the innermost of the programs
    that have used most CPU time."""
    reporting = [one for one in run.processes if one.reports]
    if reporting:
        return max(reporting, key=lambda one: one.cpu_s)
    programs = [one for one in run.processes if not _is_fork(run, one) and _was_there(run, one)]
    most_s = max((one.cpu_s for one in programs), default=0.0)
    busy = [one for one in programs if one.cpu_s >= LIKELY_TRAINS * most_s]
    return max(busy, key=lambda one: (len(_ancestors(run, one)), one.cpu_s), default=None)


def _findings(trial: Trial, kill_wait_s: float) -> Iterator[Finding]:
    for run in trial.runs:
        if run.ended:
            yield _ended_itself(run)
        elif _had_work(trial, run) and not _has_saved(trial, run):
            yield _not_saved(run, kill_wait_s)
    torn = any(_is_torn(trial, run) for run in trial.runs)
    if torn and not any(run.ended for run in trial.runs):
        yield TORN
    yield from _about_the_next_run(trial, torn)
    yield from _about_survivors(trial.survivors)


TORN = Finding(
    Code.SAVE_TORN,
    "A second signal interrupted the save.",
    "Let the handler only set a flag, and save between two steps: a second signal then has no "
    "effect. Write the checkpoint beside the old one and rename it.",
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
    if process is not None and dies and not run.asked:
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
        return Finding(
            Code.NOT_REACHED,
            f"{name} did not reach {described(process)}: here Slurm sends it only to the script's "
            "own process and to the tasks of srun.",
            "End the script with `exec`: exec python3 ..., or exec srun python3 ....",
            SIGNALS,
        )
    if does is Disposition.DEFAULT:
        return _has_no_handler(run, process, name)
    if does is Disposition.IGNORED:
        return Finding(
            Code.IGNORED,
            f"{described(process)} ignores {name}, and was killed {kill_wait_s:g} s later.",
            "Save on it, with slurm_tiresias.job or a custom handler.",
            SAVING,
        )
    return _handled_in_vain(run, process, kill_wait_s)


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
    lived_s = _since(run.term_s, process.gone_s)
    begun = _begun_after(run)
    if run.killed and lived_s is not None and lived_s >= kill_wait_s - 1.0:
        after = f"SIGKILL ended {described(process)} {kill_wait_s:g} s after SIGTERM (KillWait)"
        if begun:
            return Finding(
                Code.SAVE_TOO_LONG,
                f"The save took longer than the grace: {after}, in the middle of it.",
                "Save faster, write from several processes, or ask for time before it: "
                "--tiresias-checkpoint=USR1@60. The site can raise KillWait.",
                SIGNALS,
            )
        return Finding(
            Code.STAYED,
            f"{after}, and no save had begun, as far as was observed.",
            "Check between two steps whether the job must leave, also in warm-up, evaluation and "
            "compilation; a save must be done within KillWait.",
            SAVING,
        )
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
    if workers := _workers_that_died(run, process):
        return Finding(
            Code.WORKERS_KILLED,
            f"{name_of_signal(run)} killed {len(workers)} of the worker processes of "
            f"{described(process)}, which then could not finish its step and save.",
            "Let data-loader workers ignore SIGTERM (importing slurm_tiresias.job.torch does), "
            "and save without them.",
            PYTORCH,
        )
    if run.again_s is not None:
        return TORN
    after = "" if lived_s is None else f", and ended {lived_s:.1f} s after SIGTERM"
    return _plainly_not_saved(
        f"{described(process)} handles {name_of_signal(run)}, but no save followed{after}."
    )


def _plainly_not_saved(what: str) -> Finding:
    change = "Write a checkpoint when the signal comes, before the program ends."
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


def _workers_that_died(run: Run, process: Process) -> list[Process]:
    told_s = run.told_by_s
    return [
        one
        for one in run.processes
        if (one.node, one.parent) == (process.node, process.pid)
        and one.on(run.told_by) is Disposition.DEFAULT
        and told_s is not None
        and one.gone_s is not None
        and told_s - 0.1 <= one.gone_s <= told_s + AT_ONCE_S
    ]


def _is_torn(trial: Trial, run: Run) -> bool:
    """Whether the second signal has cost the job its save, or an older one."""
    if run.again_s is None or run.ended:
        return False
    after, expected = trial.after, _saved_step(trial)
    if after is not None and (after.ended and not after.first_step):
        return True
    return (
        after is not None
        and expected is not None
        and after.resumed_step is not None
        and after.resumed_step < expected
        and not any(save.ended_s and save.ended_s > run.again_s for save in run.saves)
    )


def _about_the_next_run(trial: Trial, torn: bool) -> Iterator[Finding]:
    after = trial.after
    if after is None:
        return
    if after.ended and after.first_step is None:
        if not torn and not any(run.finished for run in trial.runs):
            yield Finding(
                Code.DID_NOT_COME_BACK,
                f"After the preemption the job started again and ended as {after.ended} (exit code "
                f"{after.exit_code}) without a step.",
                "See the last lines of its output: a start must handle anything that the previous "
                "one left.",
                SAVING,
            )
        return
    expected = _saved_step(trial)
    if expected and after.resumed_step is not None and not torn and after.resumed_step < expected:
        yield _resumed_before(after, expected)
    yield from _about_output(trial, after)


def _resumed_before(after: Run, expected: int) -> Finding:
    if after.resumed_step == 0:
        return Finding(
            Code.RESUMED_FROM_NOTHING,
            f"A checkpoint of step {expected} was saved, but the next start began from scratch.",
            "Look for a checkpoint first, under a name that is the same at each start, such as one "
            "with SLURM_JOB_ID, not with the time.",
            SAVING,
        )
    return Finding(
        Code.RESUMED_EARLIER,
        f"A checkpoint of step {expected} was saved, but the next start began at step "
        f"{after.resumed_step}.",
        "Make it load the newest complete checkpoint.",
        SAVING,
    )


def _about_output(trial: Trial, after: Run) -> Iterator[Finding]:
    if after.output_emptied:
        yield Finding(
            Code.OUTPUT_EMPTIED,
            "The start after the preemption emptied the job's output file.",
            "Submit with --open-mode=append.",
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
    held = sum(each.gpu_bytes for each in survivors)
    memory = f" It held {held / 2**30:.1f} GiB of GPU memory." if held else ""
    others = f" and {len(survivors) - 1} more" if len(survivors) > 1 else ""
    yield Finding(
        Code.SURVIVOR,
        f"After the job had left {one.node}, one of its processes was still running: "
        f"{short_command(one.command)} (pid {one.pid}){others}.{memory}",
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


def _has_saved(trial: Trial, run: Run) -> bool:
    """Whether the run saved when asked: observed directly, or inferred from where the job resumed.

    A program whose saves are not observed may report that a step begins, and not that it is done.
    """
    process, told_s = trainer(run), run.told_s
    if process is not None and process.on(run.told_by) is Disposition.DEFAULT:
        # A save that was done or under way when the signal came proves nothing. A program that
        # waits for the signal has no handler, and still saves.
        begun_s = (save.began_s for save in _saves_after(run))
        return told_s is not None and any(at_s is None or at_s >= told_s for at_s in begun_s)
    if _saved_after(run) is not None:
        return True
    after = trial.after
    done, resumed = run.last_step, after.resumed_step if after else None
    least = 0 if run.saves else 1
    return bool(done and resumed is not None and run is trial.runs[-1] and resumed >= done - least)


def _saved_after(run: Run) -> Save | None:
    """Return the last save that ended after the run was asked to save."""
    done = _saves_after(run)
    return done[-1] if done else None


def _saves_after(run: Run) -> list[Save]:
    told_s = run.told_s
    if told_s is None:
        return []
    return [save for save in run.saves if save.ended_s is not None and save.ended_s > told_s]


def _begun_after(run: Run) -> bool:
    """Whether a save was under way when the run ended."""
    return any(save.ended_s is None for save in run.saves)


def _saved_step(trial: Trial) -> int | None:
    """Return the step of the checkpoint that the run after the trial should find.

    Steps lost by an earlier trial are not counted against this one.
    """
    kept: int | None = None
    for run in (*trial.before, *trial.runs):
        if kept is not None and run.resumed_step is not None:
            kept = min(kept, run.resumed_step)
        for save in run.saves:
            if save.ended_s is not None and save.step is not None:
                kept = save.step
    return kept


def _redone(trial: Trial) -> int | None:
    after = trial.after
    if after is None or after.resumed_step is None or not trial.runs:
        return None
    done = [run.last_step for run in trial.runs if run.last_step is not None]
    saved = _saved_step(trial)
    reached = max([*done, *([saved] if saved is not None else [])], default=None)
    return None if reached is None else max(0, reached - after.resumed_step)


def _what_is_unknown(trial: Trial) -> str:
    """Return why a trial without findings still does not prove success; "" if it does."""
    if trial.after is None:
        return "the job was not seen to start again"
    if trial.after.resumed_step is None:
        return (
            "it cannot be seen at which step the job went on: let it report (slurm_tiresias.job), "
            "or print its steps"
        )
    return ""


def _was_there(run: Run, process: Process) -> bool:
    """Whether the process existed when the run was told to save or to leave."""
    told_s = run.told_by_s
    return told_s is None or process.gone_s is None or process.gone_s > told_s - 0.1


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
        one.direct and one is not top and one.command.split()[:1] == ["srun"]
        for one in run.processes
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


def name_of_signal(run: Run) -> str:
    """Return the name of the signal by which the run was told to save or to leave."""
    return signal_name(run.told_by)


def described(process: Process) -> str:
    """Return a process as shown to people: its shortened command and its pid."""
    return f"{short_command(process.command)} (pid {process.pid})"


def short_command(command: str) -> str:
    """Return the first words of a command, without the folders of its files."""
    words = [word.rpartition("/")[2] for word in command.split()[:3]]
    return " ".join(words)[:40] or "a process"
