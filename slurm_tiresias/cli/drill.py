"""``tiresias-slurm drill``: preempt a job of the user's own on purpose, and report the effects."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from slurm_tiresias.cli.options import config_option, config_path, json_option
from slurm_tiresias.cli.screen import Screen, show_or_json
from slurm_tiresias.config import load
from slurm_tiresias.controller.drilled import say_how_it_ended
from slurm_tiresias.drill.counters import REPORTS
from slurm_tiresias.drill.judge import TrialOutcome, Verdict, judge_all, signal_name
from slurm_tiresias.drill.observed import MOMENTS, Drill, DrillRun, Trial, TrialKind
from slurm_tiresias.drill.rehearsal import (
    CannotRehearseError,
    DrillPlan,
    StoppedError,
    rehearse,
    stoppable,
)
from slurm_tiresias.errors import ConfigError, TiresiasError, UsageError
from slurm_tiresias.model import ASK_SIGNAL
from slurm_tiresias.settings import Config
from slurm_tiresias.settings.preemption import PreemptionConfig
from slurm_tiresias.text import count, listed, printable, shorten

SCHEMA = 1
FAILED, UNKNOWN = 16, CannotRehearseError.exit_code
"""Exit codes: a trial failed; the job, or a part of the drill, could not be tested."""

TRAP = re.compile(r"""^\s*trap\s+(?:'([^']*)'|"([^"]*)"|(\w+))\s.*\b(?:SIG)?TERM\b""", re.MULTILINE)
LOOKS = {
    TrialOutcome.FAILED: "bad",
    TrialOutcome.UNKNOWN: "note",
    TrialOutcome.NOT_TESTED: "note",
    TrialOutcome.PASSED: "good",
}


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--trial",
    "kinds",
    type=click.Choice([kind.value for kind in TrialKind]),
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
    twice in a row), and cancelled. Its output is removed; files that it has made are left.
    Needs only the right to use sbatch; no plugin and no controller. Takes one to a few minutes.

    \b
    Exit codes: 0 no trial failed, and each that could hit its moment passed; 16 a trial failed;
    17 the job could not be tested, or a trial shows nothing.
    """
    options, script = divided(words)
    notes = notes_on((*options, *options_in(script[0])), script[0])
    config = _config()
    plan = DrillPlan(
        options,
        script,
        tuple(kind for kind in TrialKind if not kinds or kind.value in kinds),
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
    noted, not_noted_because = _note(seen, verdicts, config.preemption, config.controller.state_dir)
    if noted:
        notes += (
            "The controller has noted it: your jobs of this name may be preempted "
            f"{config.preemption.drilled_min_run_s:g} s after each start "
            "(preemption.drilled_min_run_s).",
        )
    elif not_noted_because:
        notes += (f"This is not noted for your later jobs. {not_noted_because}.",)
    told = {"noted": noted, "not_noted_because": not_noted_because, "notes": notes}
    show_or_json(
        as_json,
        lambda: {**as_object(seen, verdicts), **told},
        lambda screen: report(seen, verdicts, screen, notes),
    )
    context.exit(exit_code(verdicts))


def _note(
    seen: Drill, verdicts: Sequence[Verdict], site: PreemptionConfig, state_dir: str
) -> tuple[bool, str]:
    """Tell the controller whether the program passed all trials, if that affects later jobs.

    A drill in which a trial was left out, or that hit no step, proves nothing; one failed trial is
    enough. Returns whether the controller has noted that it passed, and otherwise why not.
    """
    code = exit_code(verdicts)
    hit = {verdict.kind for verdict in verdicts if verdict.outcome is TrialOutcome.PASSED}
    passed = (
        code == 0 and {TrialKind.STEP, TrialKind.TWICE} <= hit and len(verdicts) == len(TrialKind)
    )
    if site.drilled_min_run_s <= 0 or not (passed or code == FAILED):
        return False, ""
    try:
        say_how_it_ended(Path(state_dir), seen.job_id, passed=passed)
    except TiresiasError as error:
        return False, printable(error.what)
    return passed, ""


def exit_code(verdicts: Sequence[Verdict]) -> int:
    """Return 0, or the exit code of the worst result."""
    outcomes = {verdict.outcome for verdict in verdicts}
    if TrialOutcome.FAILED in outcomes:
        return FAILED
    return UNKNOWN if TrialOutcome.UNKNOWN in outcomes or TrialOutcome.PASSED not in outcomes else 0


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


def options_in(script: str) -> tuple[str, ...]:
    """Return the options of sbatch that the script holds."""
    words: list[str] = []
    with Path(script).open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("#SBATCH"):
                words += line.removeprefix("#SBATCH").partition(" #")[0].split()
            elif line.strip() and not line.startswith("#"):
                break
    return tuple(words)


def notes_on(options: Sequence[str], script: str) -> tuple[str, ...]:
    """Return what is wrong with a script though its trials may pass; refuse an array."""
    if any(word.startswith(("--array", "-a")) for word in options):
        raise UsageError(
            "A drill tests a single job, and this is an array",
            "Leave --array out, also in a copy of the script",
        )
    notes: tuple[str, ...] = ()
    if "--no-requeue" in options:
        notes += (
            "The job has --no-requeue, which the drill has overridden: it is never preempted. "
            "Remove that if it may be.",
        )
    text = Path(script).read_text(encoding="utf-8", errors="replace")
    bodies = ["".join(found).strip() for found in TRAP.findall(text)]
    for name in tuple(bodies):
        function = rf"(?ms)^\s*(?:function\s+)?{re.escape(name)}\b[^\n]*\{{(.*?)\}}"
        bodies += re.findall(function, text)
    if any(re.search(r"\bexit 0\b", body) for body in bodies):
        notes += (
            "A trap of the script ends with exit 0, so that a cancelled job looks finished. End "
            "with another code.",
        )
    return notes


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


# Results


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
        "unwatched_nodes": seen.unwatched_nodes,
        "only_nodes": seen.only_nodes,
        "left": seen.left,
        "last_lines": seen.last_lines,
    }


def _run(run: DrillRun) -> dict[str, Any]:
    told_s = run.told_by_s
    plain = ("number", "nodes", "told_s", "asked", "signal_s", "answered_s", "requeued_s", "term_s")
    return {
        **{name: getattr(run, name) for name in (*plain, "ended")},
        "told_by": signal_name(run.told_by),
        "signalled_again_s": run.again_s,
        "processes": [
            {
                "node": one.node,
                "pid": one.pid,
                "command": one.command,
                "got_signal": run.reaches(one),
                "disposition": one.on(run.told_by),
                "gone_after_s": None if one.gone_s is None else round(one.gone_s - told_s, 3),
            }
            for one in run.processes
            if told_s is not None and (one.gone_s is None or one.gone_s >= told_s)
        ],
    }


def report(
    seen: Drill, verdicts: Sequence[Verdict], screen: Screen, notes: Sequence[str] = ()
) -> Iterator[str]:
    """Yield the drill for people: each trial with its cause, each remedy once, then the summary."""
    first = (
        f"SIG{seen.signal}, at most {seen.grace_s:g} s later "
        if seen.signal
        else "where it says that it saves on request, a request to save first; "
        if any(verdict.asked for verdict in verdicts)
        else ""
    )
    unasked = any(REPORTS in run.counters and not run.by_plugin for run in seen.runs)
    yield from screen.prose(
        f"Job {seen.job_id} was preempted as the controller does it: {first}SIGTERM, and SIGKILL "
        f"{seen.kill_wait_s:g} s later."
        + (
            " Without the plugin, as here, the controller does not ask the library to save first."
            if unasked and not seen.signal
            else ""
        ),
        indent="",
    )
    explained: set[str] = set()
    for trial, verdict in zip(seen.trials, verdicts, strict=True):
        yield ""
        word = screen.style(verdict.outcome.value, LOOKS[verdict.outcome])
        yield f"{word}  {screen.style(f'preempted {MOMENTS[verdict.kind]}', 'title')}"
        if facts := "; ".join(_facts(verdict, trial)):
            yield from screen.prose(f"{facts[:1].upper()}{facts[1:]}.")
        if verdict.why_unknown:
            word = "Not tested" if verdict.outcome is TrialOutcome.NOT_TESTED else "Not known"
            yield from screen.prose(printable(f"{word}: {verdict.why_unknown}."))
        if cause := verdict.cause:
            yield from screen.item(printable(f"{cause.code}: {cause.what}"))
            if cause.code not in explained:
                yield from screen.prose(f"Change: {cause.change} See {cause.page}.", indent="    ")
            explained.add(cause.code)
    if seen.last_lines and any(verdict.why_unknown for verdict in verdicts):
        yield ""
        yield "The last lines of its output:"
        for line in seen.last_lines:
            yield shorten(f"  {printable(line)}", screen.width or 240)
    yield ""
    for text in (_sum(seen, verdicts), *notes):
        yield from screen.prose(text, indent="")


def _facts(verdict: Verdict, trial: Trial) -> Iterator[str]:
    unit = verdict.unit
    if verdict.told_step is not None:
        yield f"it was at {unit} {verdict.told_step}"
    elif verdict.kind is not TrialKind.START_UP and verdict.saved_step is None:
        yield "no step of it was seen"
    if verdict.asked:
        yield f"it was asked to save by SIG{ASK_SIGNAL}"
    if verdict.saved and verdict.save_s is not None:
        step = f" {unit} {verdict.saved_step}" if verdict.saved_step is not None else ""
        yield f"it saved{step} within {verdict.save_s:.1f} s"
    elif verdict.saved is False:
        yield "it did not save"
    if verdict.requeued_s is not None:
        why = ", as it reported the save" if verdict.answered else ""
        if verdict.asked and not verdict.answered:
            why = ", and had reported no save by then"
        yield f"it was requeued {verdict.requeued_s:.1f} s after the signal{why}"
    if verdict.left_s is not None:
        yield f"it was gone {verdict.left_s:.1f} s after SIGTERM"
    if verdict.resumed_step is not None:
        first_s = verdict.first_step_s
        behind = "" if first_s is None else f", its first step {first_s:.1f} s later"
        before = trial.runs[-1].nodes if trial.runs else ()
        nodes = trial.after.nodes if trial.after else ()
        where = f" on {listed(nodes)}" if nodes and set(nodes) != set(before) else ""
        again = "preempted again, " if len(trial.runs) > 1 else ""
        yield f"{again}it went on from {unit} {verdict.resumed_step}{where}{behind}"
    if verdict.steps_redone:
        yield f"{count(verdict.steps_redone, unit)} done again"


def _sum(seen: Drill, verdicts: Sequence[Verdict]) -> str:
    by_outcome = Counter(verdict.outcome for verdict in verdicts)
    said = ", ".join(f"{by_outcome[one]} {one}" for one in LOOKS if by_outcome[one])
    text = f"{count(len(verdicts), 'trial')}: {said or 'none'}."
    if seen.unwatched_nodes:
        nodes = listed(seen.unwatched_nodes)
        text += f" Whether anything stayed behind on {nodes} could not be seen."
    if seen.only_nodes and verdicts:
        text += (
            f" All starts were on {listed(seen.only_nodes)}: whether the job finds its checkpoint "
            "on another node was not tested."
        )
    if seen.left:
        text += f" In its folder are new files with its id: {listed(seen.left)}."
    return text
