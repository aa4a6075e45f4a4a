"""``tiresias-slurm tune``: find the thresholds that would have worked best for a history of
jobs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from slurm_tiresias import __version__
from slurm_tiresias.cli.options import json_option
from slurm_tiresias.cli.progress import progress
from slurm_tiresias.cli.screen import Screen, stdout
from slurm_tiresias.cli.simulation_options import (
    Base,
    Command,
    Source,
    World,
    base_option,
    fitting,
    set_option,
    source_options,
    together,
    with_settings,
    world_options,
)
from slurm_tiresias.errors import UsageError
from slurm_tiresias.simulator import sensitivity, sweep, sweep_on_slurm
from slurm_tiresias.simulator import tune as tuning
from slurm_tiresias.simulator.baselines import SOON_SIMULATED
from slurm_tiresias.simulator.report import how_saved, protection, settings, what_cannot_run
from slurm_tiresias.simulator.run import TIRESIAS
from slurm_tiresias.simulator.sweep import Cell, Failed, Result, Task
from slurm_tiresias.simulator.sweep_on_slurm import DEFAULT_MINUTES, Jobs
from slurm_tiresias.simulator.tune import Advice, Evidence
from slurm_tiresias.simulator.workload import Workload
from slurm_tiresias.table import Column
from slurm_tiresias.text import count, duration, or_dash, printable

WIDTH = 80
"""Width of the output, in a pipe too, since it is meant to be pasted into a mail."""


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The jobs to simulate, and how to describe them."""

    task: Task
    cluster: str
    unfit: int
    base: Base

    @property
    def workload(self) -> Workload:
        return self.task.workload

    @property
    def like(self) -> Cell:
        """The current setting, which others must beat."""
        policy = self.task.setup.config.policy
        return Cell(policy.thresholds_gpu_s, promote_knob=policy.promote_knob)

    @property
    def present(self) -> str:
        """The name of the current setting in the output."""
        return "default" if self.base.file is None else "present setting"


@dataclass(frozen=True, slots=True)
class OnSlurm:
    """Whether to run the simulations as Slurm jobs, and in which partition."""

    on_slurm: bool
    slurm_partition: str | None
    slurm_minutes: int | None
    jobs_dir: Path | None

    def jobs(self) -> Jobs | None:
        """None: on this machine. Raises ``UsageError`` without submitit, or for useless options."""
        if self.on_slurm:
            sweep_on_slurm.check_submitit()
            minutes = self.slurm_minutes or DEFAULT_MINUTES
            return Jobs(self.jobs_dir or Path(), self.slurm_partition, minutes)
        if (self.slurm_partition, self.slurm_minutes, self.jobs_dir) != (None, None, None):
            raise UsageError(
                "--slurm-partition, --slurm-time and --jobs-dir have no effect without --on-slurm",
                "Add --on-slurm, or leave them out",
            )
        return None


def slurm_options(command: Command) -> Command:
    """Add the options for running as Slurm jobs; the command gets an ``OnSlurm`` as ``slurm``."""
    return together(
        command,
        "slurm",
        OnSlurm,
        click.option("--on-slurm", is_flag=True, help="Simulate in jobs of this Slurm cluster."),
        click.option("--slurm-partition", metavar="P", help="Partition of these jobs."),
        click.option(
            "--slurm-time",
            "slurm_minutes",
            metavar="MIN",
            type=click.IntRange(min=1),
            help=f"Time limit of each job, in minutes; {DEFAULT_MINUTES} by default.",
        ),
        click.option(
            "--jobs-dir",
            type=click.Path(path_type=Path, file_okay=False),
            metavar="DIR",
            help="Folder that all nodes share; by default the current one.",
        ),
    )


@click.command()
@base_option
@source_options
@world_options
@set_option
@click.option(
    "--policy",
    type=click.Choice(tuple(TIRESIAS)),
    default="tiresias-l",
    show_default=True,
    help="Policy whose thresholds are tuned; a --sweep shows tiresias-l and tiresias-g.",
)
@click.option(
    "--objective",
    type=click.Choice(tuple(tuning.OBJECTIVES)),
    default="average",
    show_default=True,
    help="The job completion time to minimize.",
)
@click.option(
    "--sweep",
    "sweep_name",
    type=click.Choice(tuple(sensitivity.SWEEPS)),
    help="Show how sensitive the result is to one setting (paper Figs. 14 and 15), without advice.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=0),
    default=0,
    help="Number of processes; 0: one for each core.",
)
@slurm_options
@json_option
def tune(
    base: Base,
    source: Source,
    world: World,
    changes: tuple[str, ...],
    policy: str,
    objective: str,
    sweep_name: str | None,
    workers: int,
    slurm: OnSlurm,
    as_json: bool,
) -> None:
    """Recommend thresholds for a history of jobs, with the evidence.

    Simulates the history under about twenty settings, chooses one on the first half of
    the jobs, and confirms it on the second half. If no setting is shown to be better, the current
    one stays: the default, or that of --config.
    """
    jobs = slurm.jobs()
    base = replace(base, config=with_settings(base.config, changes))
    inputs = _inputs(base, source, world)

    def simulated(cells: Sequence[Cell]) -> tuple[Result, ...]:
        with progress("settings", len(cells)) as advance:
            if jobs is not None:
                return sweep_on_slurm.run_on_slurm(inputs.task, cells, jobs, advance)
            return sweep.run_here(inputs.task, cells, advance, workers)

    if sweep_name is not None:
        _show_sweep(inputs, sweep_name, simulated, as_json)
    else:
        like = replace(inputs.like, policy=policy)
        _show_advice(inputs, like, objective, simulated, as_json)


def _inputs(base: Base, source: Source, world: World) -> _Inputs:
    site = world.site()
    setup = world.setup(site, base.config)
    workload, unfit = fitting(source.load(site), site, world.cluster)
    return _Inputs(Task(workload, setup), world.cluster, unfit, base)


Simulated = Callable[[Sequence[Cell]], tuple[Result, ...]]


def _screen() -> Screen:
    screen = stdout()
    return replace(screen, width=WIDTH) if screen.width is None else screen


def _preamble(inputs: _Inputs, screen: Screen) -> Iterator[str]:
    workload = inputs.workload
    jobs, days = count(len(workload.jobs), "job"), tuning.span_days(workload)
    yield f"{printable(workload.name)}: {jobs} on {printable(inputs.cluster)}, {days:.1f} days"
    notes = [*workload.notes, *workload.what_was_dropped()]
    if (file := inputs.base.file) is not None:
        limits = protection(inputs.task.setup.config.preemption)
        notes.insert(0, f"as {file} has it; protection: {limits}")
    notes.append(f"saves: {how_saved(inputs.task.setup.costs.saves)}")
    if inputs.unfit:
        notes.append(what_cannot_run(inputs.unfit))
    for note in notes:
        yield from screen.prose(printable(note), indent="")


def _about(inputs: _Inputs) -> dict[str, Any]:
    return {
        "version": __version__,
        "workload": inputs.workload.name,
        "sha256": inputs.workload.sha256,
        "jobs": len(inputs.workload.jobs),
        "dropped": len(inputs.workload.dropped),
        "notes": list(inputs.workload.notes),
        "cannot_run_on_the_cluster": inputs.unfit,
        "span_days": tuning.span_days(inputs.workload),
        "cluster": inputs.cluster,
        "config_file": inputs.base.named,
        "config": settings(inputs.task.setup),
    }


def _setting(cell: Cell) -> str:
    """Return the thresholds of a setting in GPU-hours."""
    hours = (cut / 3600 for cut in cell.thresholds_gpu_s)
    return ",".join(f"{each:.3g}" if each < 1000 else f"{each:.0f}" for each in hours)


def _failures(failed: Sequence[Failed]) -> Iterator[str]:
    for each in failed:
        yield f"failed: {_setting(each.cell)} GPU-hours: {printable(each.why)}"


# The advice


def _show_advice(
    inputs: _Inputs, like: Cell, objective: str, simulated: Simulated, as_json: bool
) -> None:
    cuts_to_try = tuning.candidates(inputs.workload, like.thresholds_gpu_s)
    cells = [replace(like, thresholds_gpu_s=cuts) for cuts in cuts_to_try]
    tellers = tuning.what_jobs_could_tell(cells[0])
    baselines = {name: replace(cells[0], policy=name) for name in SOON_SIMULATED}
    results = simulated([*cells, *tellers.values(), *baselines.values()])
    advice = tuning.advise(inputs.workload, results[: len(cells)], objective)
    failed = (result for result in results[len(cells) :] if isinstance(result, Failed))
    advice = replace(advice, failed=(*advice.failed, *failed))
    ratios = {
        title: tuning.told_ratio(results[0], result, objective)
        for title, result in zip((*tellers, *baselines), results[len(cells) :], strict=True)
    }
    told, instead = ({title: ratios[title] for title in group} for group in (tellers, baselines))
    if as_json:
        found = _advice_as_json(advice, inputs.present) | {
            "if_jobs_told_more": told,
            "under_baselines": instead,
        }
        click.echo(json.dumps(_about(inputs) | found))
        return
    screen, present = _screen(), inputs.present
    screen.show(_preamble(inputs, screen))
    screen.show([f"under the {present} {advice.waiting:.0%} of the jobs waited a minute or more"])
    for warning in advice.warnings:
        screen.show(screen.prose(f"warning: {warning}.", indent=""))
    screen.show(_evidence(advice, present, screen))
    screen.show(_failures(advice.failed))
    would_be = f"{_jct(advice)} would be, as a multiple of the {present}'s"
    paragraphs = (
        sentence(advice, present),
        f"If more were known of the jobs (policy.estimates), {would_be}: {_ratios(told)}.",
        _under_the_best(advice, instead, present),
    )
    screen.show(["", *(line for text in paragraphs for line in screen.prose(text, indent=""))])
    screen.show(["", *tuning.fragment(advice).splitlines()])


def _ratios(found: Mapping[str, float | None]) -> str:
    return ", ".join(f"{or_dash(ratio, RATIO)} if {title}" for title, ratio in found.items())


def _under_the_best(advice: Advice, instead: Mapping[str, float | None], present: str) -> str:
    simulated = {name: ratio for name, ratio in instead.items() if ratio is not None}
    if not simulated:
        return ""
    best = min(simulated, key=simulated.__getitem__)
    return (
        f"Without Tiresias, under the better of {' and '.join(simulated)}, {best}, {_jct(advice)} "
        f"would be {RATIO(simulated[best])} of the {present}'s."
    )


def _evidence(advice: Advice, present: str, screen: Screen) -> Iterator[str]:
    def mark(row: Evidence) -> str:
        if row is advice.recommended:
            return "*"
        return "=" if row.as_good_as_best else ""

    columns: Sequence[Column[Evidence]] = (
        Column("", mark),
        Column("GPU-HOURS", lambda row: _setting(row.cell)),
        Column("TIERS", lambda row: str(row.cell.tiers), right=True, goes=2),
        Column(advice.objective.upper(), lambda row: duration(row.objective_s), right=True),
        Column("FIRST", lambda row: f"{row.first.value:.3f}", right=True),
        Column("SECOND", lambda row: f"{row.second.value:.3f}", right=True),
        Column("95%", lambda row: f"{row.second.low:.2f}-{row.second.high:.2f}", right=True),
        Column(
            "PARTS",
            lambda row: f"{min(row.second.parts):.2f}-{max(row.second.parts):.2f}",
            right=True,
        ),
        Column("PREEMPT", lambda row: str(row.preemptions), right=True, goes=1),
    )
    rows = sorted(advice.evidence, key=lambda row: (row.cell.tiers, row.cell.thresholds_gpu_s))
    yield from screen.table(columns, rows)
    yield from screen.prose(
        "* recommended, = as good as the best of the first half as far as can be told. "
        f"FIRST and SECOND: {_jct(advice)} of the jobs of that half as a multiple of the "
        f"{present}'s; 95%: how far chance may move SECOND; PARTS: its least and largest over the "
        f"{len(advice.default.second.parts)} parts of the second half.",
        indent="",
    )


def _jct(advice: Advice) -> str:
    names = {"average": "the average JCT", "median": "the median JCT", "p95": "the 95th percentile"}
    return names[advice.objective]


def sentence(advice: Advice, present: str = "default") -> str:
    """Return the recommendation and how certain it is; ``present`` names the current setting."""
    stays = f"The {present} stays, {_named(advice.default)}"
    if advice.warnings:
        return f"{stays}: this history says too little."
    if advice.recommended is not advice.default:
        recommended = advice.recommended
        return f"Recommended: {_named(recommended)}. {_compared(recommended, advice, present)}"
    if advice.best is advice.default:
        return f"{stays}: nothing was better in the first half."
    if advice.chosen is advice.default:
        why = "nothing was better in the first half by more than chance or one percent"
        compared = _compared(advice.best, advice, present)
        return f"{stays}: {why}. The best there: {_named(advice.best)}. {compared}"
    why = f"the second half confirms none of the better ones, like {_named(advice.chosen)}"
    return f"{stays}: {why}. {_compared(advice.chosen, advice, present)}"


def _named(row: Evidence) -> str:
    hours = _setting(row.cell).replace(",", ", ")
    return f"{row.cell.tiers} tiers cut at {hours} GPU-{'hour' if hours == '1' else 'hours'}"


def _compared(row: Evidence, advice: Advice, present: str) -> str:
    """Return the difference to the current setting in the second half, with its spread."""
    ratio = row.second
    return (
        f"In the second half of the history {_jct(advice)} with it differs from the {present}'s "
        f"by {_change(ratio.value)} (95% certain: {_change(ratio.low)} to "
        f"{_change(ratio.high)}; over the {len(ratio.parts)} parts: {_change(min(ratio.parts))} "
        f"to {_change(max(ratio.parts))})."
    )


def _change(ratio: float) -> str:
    return f"{ratio - 1.0:+.1%}"


def _advice_as_json(advice: Advice, present: str) -> dict[str, Any]:
    return {
        "objective": advice.objective,
        "waited_a_minute": advice.waiting,
        "warnings": list(advice.warnings),
        "recommended": _row_as_json(advice.recommended),
        "default": _row_as_json(advice.default),
        "chosen_on_the_first_half": _row_as_json(advice.chosen),
        "best_of_the_first_half": _row_as_json(advice.best),
        "conclusion": sentence(advice, present),
        "toml": tuning.fragment(advice),
        "evidence": [_row_as_json(row) for row in advice.evidence],
        "failed": [_failed_as_json(each) for each in advice.failed],
    }


def _row_as_json(row: Evidence) -> dict[str, Any]:
    return asdict(row) | {"tiers": row.cell.tiers}


def _failed_as_json(failed: Failed) -> dict[str, Any]:
    return {"cell": asdict(failed.cell), "why": failed.why}


# How much one setting matters


RATIO = "{:.3f}".format
SENSITIVITY: Sequence[Column[sensitivity.Row]] = (
    Column("POLICY", lambda row: row.cell.policy),
    Column("GPU-HOURS", lambda row: _setting(row.cell)),
    Column("KNOB", lambda row: f"{row.cell.promote_knob or math.inf:g}", right=True),
    Column("AVERAGE", lambda row: duration(row.average_jct_s), right=True),
    Column("RATIO", lambda row: or_dash(row.average, RATIO), right=True),
    Column("MEDIAN", lambda row: or_dash(row.median, RATIO), right=True),
    Column("P95", lambda row: or_dash(row.p95, RATIO), right=True),
    Column("MAX", lambda row: or_dash(row.largest, RATIO), right=True),
    Column("PREEMPT", lambda row: str(row.preemptions), right=True),
    Column("PROMOTED", lambda row: str(row.promotions), right=True, goes=1),
)


def _show_sweep(inputs: _Inputs, name: str, simulated: Simulated, as_json: bool) -> None:
    results = simulated(sensitivity.cells_of(name))
    rows = sensitivity.compared(results)
    failed = [result for result in results if isinstance(result, Failed)]
    if as_json:
        found = {"sweep": name, "rows": [asdict(row) for row in rows]}
        failures = {"failed": [_failed_as_json(each) for each in failed]}
        click.echo(json.dumps(_about(inputs) | found | failures))
        return
    screen = _screen()
    screen.show(_preamble(inputs, screen))
    screen.show(screen.table(SENSITIVITY, rows))
    screen.show(_failures(failed))
    screen.show(
        screen.prose(
            "RATIO (of the average), MEDIAN, P95 and MAX are multiples of the first line of the "
            "same policy.",
            indent="",
        )
    )
