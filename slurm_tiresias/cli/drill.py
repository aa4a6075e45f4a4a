"""``tiresias-slurm drill``: preempt a job of the user's own on purpose, and report the effects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from slurm_tiresias.cli.options import config_option, config_path, json_option
from slurm_tiresias.cli.screen import Screen, show_or_json
from slurm_tiresias.cli.text import count, listed, printable, shorten
from slurm_tiresias.config import Config, load
from slurm_tiresias.controller.drilled import say_how_it_ended
from slurm_tiresias.drill.judge import Outcome, Verdict, judge_all, short_command, signal_name
from slurm_tiresias.drill.observed import Disposition, Drill, Kind, Process, Run, Trial
from slurm_tiresias.drill.rehearsal import (
    CannotRehearseError,
    Plan,
    StoppedError,
    rehearse,
    stoppable,
)
from slurm_tiresias.errors import ConfigError, RefusedError, UsageError
from slurm_tiresias.model import ASK_SIGNAL

SCHEMA = 1
FAILED, UNKNOWN = 16, CannotRehearseError.exit_code
"""Exit codes: a trial failed; the job, or a part of the drill, could not be tested."""

MOST_PROCESSES_SHOWN = 6
LOOKS = {Outcome.PASSED: "good", Outcome.FAILED: "bad", Outcome.UNKNOWN: "note"}

MOMENTS = {
    Kind.START_UP: "during start-up",
    Kind.STEP: "in a step",
    Kind.SAVE: "during a save",
    Kind.TWICE: "twice in a row",
}


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--trial",
    "kinds",
    type=click.Choice([kind.value for kind in Kind]),
    multiple=True,
    help="Only this trial; may be given several times.",
)
@click.option(
    "--minutes",
    type=click.IntRange(2, 120),
    default=15,
    show_default=True,
    help="The time limit of each run of the job.",
)
@click.option(
    "--wait-min",
    type=click.FloatRange(0.1, 1440),
    default=10.0,
    show_default=True,
    help="How long the job may wait for each start.",
)
@click.option(
    "--step-wait-s",
    type=click.FloatRange(1, 3600),
    default=60.0,
    show_default=True,
    help="How long to wait for the first steps of a run. Then it is preempted wherever it is.",
)
@json_option
@config_option
@click.argument(
    "words",
    nargs=-1,
    required=True,
    type=click.UNPROCESSED,
    metavar="[SBATCH OPTIONS] SCRIPT [ARGUMENTS]...",
)
def drill(
    kinds: tuple[str, ...],
    minutes: int,
    wait_min: float,
    step_wait_s: float,
    as_json: bool,
    words: tuple[str, ...],
) -> None:
    """Preempt a job of your own on purpose, and report what that does to it.

    Give the arguments that you would give to `sbatch`, but for a small job: few steps, few GPUs,
    and options that keep the program from touching the checkpoints of your real jobs. The job is
    submitted, preempted as by the controller (during start-up, in a step, during a save, and
    twice in a row), and cancelled. Files named by its job id, such as its output, are removed.
    Needs only the right to use sbatch; no plugin and no controller. Takes one to a few minutes.

    \b
    Exit codes: 0 every trial passed, 16 a trial failed,
    17 the job, or a part of the drill, could not be tested.
    """
    options, script = divided(words)
    config = _config()
    plan = Plan(
        (*options, *one_task(options, script[0])),
        script,
        tuple(kind for kind in Kind if not kinds or kind.value in kinds),
        minutes=minutes,
        start_wait_s=60 * wait_min,
        step_wait_s=step_wait_s,
    )
    context = click.get_current_context()
    with stoppable(), _progress() as say:
        try:
            seen = rehearse(plan, config.preemption, say)
        except StoppedError as stopped:
            say("stopped; the job is cancelled and nothing is left behind")
            context.exit(128 + stopped.number)
    verdicts = judge_all(seen)
    noted = _note(seen, verdicts, config)
    show_or_json(
        as_json,
        lambda: {**as_object(seen, verdicts), **asdict(noted)},
        lambda screen: chain(report(seen, verdicts, screen), _in_words(noted, config, screen)),
    )
    context.exit(exit_code(verdicts))


@dataclass(frozen=True, slots=True)
class Noted:
    """Whether the controller has recorded that the program passed all trials; if not, why not.

    The reason is "" if the record would have no effect.
    """

    noted: bool
    not_noted_because: str = ""


def _note(seen: Drill, verdicts: Sequence[Verdict], config: Config) -> Noted:
    """Tell the controller whether the program passed all trials, if that affects later jobs.

    A drill in which a trial was left out proves nothing; one failed trial is enough.
    """
    code = exit_code(verdicts)
    passed = code == 0 and {verdict.kind for verdict in verdicts} == set(Kind)
    if config.preemption.drilled_min_run_s <= 0 or not (passed or code == FAILED):
        return Noted(noted=False)
    try:
        say_how_it_ended(Path(config.controller.state_dir), seen.job_id, passed=passed)
    except RefusedError as refused:
        return Noted(noted=False, not_noted_because=refused.what)
    except (OSError, ValueError) as error:
        why = printable(str(getattr(error, "strerror", None) or error))
        text = f"No controller answers in {config.controller.state_dir} ({why})"
        return Noted(noted=False, not_noted_because=text)
    return Noted(noted=passed)


def _in_words(noted: Noted, config: Config, screen: Screen) -> Iterator[str]:
    if noted.noted:
        yield from screen.prose(
            "The controller has noted it: your jobs of this name may be preempted "
            f"{config.preemption.drilled_min_run_s:g} s after each start "
            "(preemption.drilled_min_run_s).",
            indent="",
        )
    elif noted.not_noted_because:
        yield from screen.prose(
            f"This is not noted for your later jobs. {noted.not_noted_because}.", indent=""
        )


def exit_code(verdicts: Sequence[Verdict]) -> int:
    """Return 0, or the exit code of the worst result."""
    outcomes = {verdict.outcome for verdict in verdicts}
    if Outcome.FAILED in outcomes:
        return FAILED
    return UNKNOWN if Outcome.UNKNOWN in outcomes or not outcomes else 0


def divided(words: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return sbatch's options, and the script with its arguments.

    The script is the first word that is not an option and names a file, since an option may be
    followed by its value.
    """
    for index, word in enumerate(words):
        if word == "--wrap" or word.startswith("--wrap="):
            raise UsageError(
                "A drill needs a script, and --wrap has none", "Write the command into a script"
            )
        if not word.startswith("-") and Path(word).is_file():
            return tuple(words[:index]), tuple(words[index:])
    raise UsageError(
        f"There is no batch script among: {shorten(printable(' '.join(words)), 60)}",
        "Name an existing file: tiresias-slurm drill [SBATCH OPTIONS] SCRIPT [ARGUMENTS]",
    )


def one_task(options: Sequence[str], script: str) -> tuple[str, ...]:
    """Return the option that reduces an array to one task; nothing for other jobs."""
    given = [word for word in options if word.startswith(("--array", "-a"))]
    if given:
        raise UsageError("A drill tests a single job", "Leave --array out, or write --array only")
    with Path(script).open(encoding="utf-8", errors="replace") as file:
        for line in file:
            word = line.removeprefix("#SBATCH").strip() if line.startswith("#SBATCH") else ""
            if word.startswith(("--array", "-a")):
                first = "".join(ch if ch.isdigit() else " " for ch in word).split()
                return (f"--array={first[0]}",) if first else ()
    return ()


def _config() -> Config:
    """Return the site's configuration; the defaults if there is none on this host."""
    try:
        return load(config_path())
    except ConfigError:
        if config_path().exists():
            raise
        return Config()


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows the current step: a spinner on a terminal, lines elsewhere."""
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status("") as status:
            yield lambda text: status.update(printable(text))
    else:
        yield lambda text: click.echo(f"drill: {printable(text)}", err=True)


# JSON


def as_object(seen: Drill, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return the drill for ``--json``. Fields are added, never changed."""
    return {
        "schema": SCHEMA,
        "job_id": seen.job_id,
        "kill_wait_s": seen.kill_wait_s,
        "signal": seen.signal,
        "grace_s": seen.grace_s,
        "exit_code": exit_code(verdicts),
        "trials": [
            {**asdict(verdict), "runs": [_run(run) for run in trial.runs]}
            for trial, verdict in zip(seen.trials, verdicts, strict=True)
        ],
        "unwatched_nodes": list(seen.unwatched_nodes),
        "removed": list(seen.removed),
        "last_lines": list(seen.last_lines),
    }


def _run(run: Run) -> dict[str, Any]:
    return {
        "number": run.number,
        "nodes": list(run.nodes),
        "told_by": signal_name(run.told_by),
        "told_s": run.told_s,
        "asked": run.asked,
        "signal_s": run.signal_s,
        "answered_s": run.answered_s,
        "requeued_s": run.requeued_s,
        "term_s": run.term_s,
        "signalled_again_s": run.again_s,
        "ended": run.ended,
        "processes": [
            {
                "node": one.node,
                "pid": one.pid,
                "command": one.command,
                "got_signal": run.reaches(one),
                "disposition": one.on(run.told_by).value,
                "gone_after_s": _after(run, one),
            }
            for one in run.processes
            if _was_told(run, one)
        ],
    }


def _was_told(run: Run, process: Process) -> bool:
    """Whether the process existed when the signal was sent."""
    told_s = run.told_by_s
    return told_s is not None and (process.gone_s is None or process.gone_s >= told_s)


def _after(run: Run, process: Process) -> float | None:
    told_s = run.told_by_s
    if told_s is None or process.gone_s is None:
        return None
    return round(process.gone_s - told_s, 3)


# Text


def report(seen: Drill, verdicts: Sequence[Verdict], screen: Screen) -> Iterator[str]:
    """Yield the drill for people: each trial with its findings, then the summary."""
    first = (
        f"SIG{seen.signal}, at most {seen.grace_s:g} s later "
        if seen.signal
        else "where it says that it saves on request, a request to save first; "
        if any(verdict.asked for verdict in verdicts)
        else ""
    )
    yield from screen.prose(
        f"Job {seen.job_id} was preempted as the controller does it: {first}SIGTERM, and SIGKILL "
        f"{seen.kill_wait_s:g} s later.",
        indent="",
    )
    for trial, verdict in zip(seen.trials, verdicts, strict=True):
        yield ""
        yield from _trial(trial, verdict, screen)
    if seen.last_lines and any(verdict.why_unknown for verdict in verdicts):
        yield ""
        yield "The last lines of its output:"
        for line in seen.last_lines:
            yield shorten(f"  {printable(line)}", screen.width or 240)
    yield ""
    yield from screen.prose(_sum(seen, verdicts), indent="")


def _trial(trial: Trial, verdict: Verdict, screen: Screen) -> Iterator[str]:
    word = screen.style(verdict.outcome.value, LOOKS[verdict.outcome])
    yield f"{word}  {screen.style(f'preempted {MOMENTS[verdict.kind]}', 'title')}"
    hit = any(run.again_s is not None for run in trial.runs)
    if facts := "; ".join(_facts(verdict, hit)):
        yield from screen.prose(f"{facts[:1].upper()}{facts[1:]}.")
    for run in trial.runs:
        yield from _processes(run, screen)
    if verdict.why_unknown:
        yield from screen.prose(printable(f"Not known: {verdict.why_unknown}."))
    for finding in verdict.findings:
        yield from screen.item(printable(f"{finding.code.value}: {finding.what}"))
        yield from screen.prose(f"Change: {finding.change} See {finding.page}.", indent="    ")


def _facts(verdict: Verdict, hit: bool) -> Iterator[str]:
    if verdict.told_step is not None:
        yield f"it was at step {verdict.told_step}"
    elif verdict.kind is not Kind.START_UP and verdict.saved_step is None:
        yield "no step of it was seen"
    if verdict.asked:
        yield f"it was asked to save by SIG{ASK_SIGNAL}"
    if verdict.saved and verdict.save_s is not None:
        step = f" step {verdict.saved_step}" if verdict.saved_step is not None else ""
        yield f"it saved{step} within {verdict.save_s:.1f} s"
    elif verdict.saved is False:
        yield "it did not save"
    if verdict.kind is Kind.SAVE and verdict.saved is not None and not hit:
        yield "its save was too short, or not seen, for a second signal in the middle of it"
    if verdict.requeued_s is not None:
        why = ", as it reported the save" if verdict.answered else ""
        if verdict.asked and not verdict.answered:
            why = ", and had reported no save by then"
        yield f"it was requeued {verdict.requeued_s:.1f} s after the signal{why}"
    if verdict.left_s is not None:
        yield f"it was gone {verdict.left_s:.1f} s after SIGTERM"
    if verdict.resumed_step is not None:
        behind = (
            f", its first step {verdict.first_step_s:.1f} s later"
            if verdict.first_step_s is not None
            else ""
        )
        yield f"it went on from step {verdict.resumed_step}{behind}"
    if verdict.steps_redone is not None:
        yield f"{count(verdict.steps_redone, 'step')} done again"


def _processes(run: Run, screen: Screen) -> Iterator[str]:
    """Yield a line for each kind of process that got the signal: what it does, and how it ended.

    Processes of one command that ended alike are counted.
    """
    told = [one for one in run.processes if _was_told(run, one)]
    groups: dict[tuple[str, str, bool], list[Process]] = {}
    for one in told:
        reached = run.reaches(one)
        groups.setdefault((one.command, _does(run, one), reached), []).append(one)
    shown = list(groups.items())[:MOST_PROCESSES_SHOWN]
    if shown and run.again_s is not None:
        name = signal_name(run.signal or run.told_by)
        yield from screen.prose(f"{name} came again during the save.")
    for (command, does, reached), some in shown:
        got = f"got {signal_name(run.told_by)}" if reached else "was not signalled"
        times = [after for one in some if (after := _after(run, one)) is not None]
        gone = f", gone after {max(times):.1f} s" if times else ""
        many = f" x{len(some)}" if len(some) > 1 else ""
        words = f"    {printable(short_command(command))}{many}: {got}, {does}{gone}"
        yield words if screen.width is None else shorten(words, screen.width)
    if len(groups) > len(shown):
        yield f"    and {count(len(groups) - len(shown), 'more kind')} of processes"


def _does(run: Run, process: Process) -> str:
    after = _after(run, process)
    does = process.on(run.told_by)
    if does is Disposition.DEFAULT:
        return "died of it" if after is not None and after <= 1.0 else "has no handler"
    return {
        Disposition.HANDLER: "has a handler",
        Disposition.BLOCKED: "waits for it",
        Disposition.IGNORED: "ignores it",
    }[does]


def _sum(seen: Drill, verdicts: Sequence[Verdict]) -> str:
    numbers = [
        (sum(verdict.outcome is outcome for verdict in verdicts), outcome.value)
        for outcome in (Outcome.FAILED, Outcome.UNKNOWN, Outcome.PASSED)
    ]
    said = ", ".join(f"{number} {word}" for number, word in numbers if number)
    behind = ""
    if seen.unwatched_nodes:
        nodes = listed(seen.unwatched_nodes)
        behind = f" Whether anything stayed behind on {nodes} could not be seen."
    return f"{count(len(verdicts), 'trial')}: {said or 'none'}.{behind}"
