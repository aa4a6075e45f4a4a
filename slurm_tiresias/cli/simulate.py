"""``tiresias-slurm simulate``: replay jobs under policies, using the controller's decision code."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path

import click

from slurm_tiresias.cli import simulate_text
from slurm_tiresias.cli.options import json_option
from slurm_tiresias.cli.progress import progress
from slurm_tiresias.cli.screen import stdout
from slurm_tiresias.cli.simulate_options import (
    ALL,
    NAMES,
    checked_seconds,
    policies,
    source_or_paper480,
)
from slurm_tiresias.cli.simulation_options import (
    Base,
    Source,
    World,
    deployed_options,
    fitting,
    reports_of,
    set_option,
    source_options,
    with_settings,
    world_options,
)
from slurm_tiresias.errors import UsageError
from slurm_tiresias.extras import check_installed
from slurm_tiresias.settings import Config
from slurm_tiresias.simulator import files, page, run
from slurm_tiresias.simulator.baselines import BEST, SITES_RUN, to_choose_from
from slurm_tiresias.simulator.bound import best_speed, lower_bound_jct_s, unit_speed
from slurm_tiresias.simulator.limits import LIMIT_MODELS, with_limits
from slurm_tiresias.simulator.report import Report, Result, best_of, fair_jct_s, figures, records
from slurm_tiresias.simulator.reports import ReportModel
from slurm_tiresias.simulator.seeds import Record, spreads
from slurm_tiresias.simulator.who_pays import BY, who_pays
from slurm_tiresias.simulator.workload import Workload

MOST_SEEDS = 1000
FilePath = click.Path(path_type=Path)


@dataclass(frozen=True, slots=True)
class Outputs:
    """The requested output files, and how each is made."""

    csv: Path | None
    html: Path | None

    @classmethod
    def checked(cls, csv: Path | None, html: Path | None, inputs: Sequence[Path | None]) -> Outputs:
        """Check the paths before the simulation: an error after an hour of work would waste it."""
        if csv or html:
            check_installed("--csv and --html need", page.NEEDED)
        outputs = cls(csv and files.check_writable(csv), html and files.check_writable(html))
        if outputs.csv and outputs.csv == outputs.html:
            raise UsageError("--csv and --html name the same file", "Name two files")
        read = {path.resolve() for path in inputs if path and path.exists()}
        if read & {outputs.csv, outputs.html}:
            raise UsageError("A report would replace the file it was made from", "Name another")
        return outputs

    def write(self, report: Report) -> None:
        """Write each file atomically."""
        if self.csv:
            files.write_whole(self.csv, page.csv(report))
        if self.html:
            files.write_whole(self.html, page.html(report))


@click.command()
@deployed_options
@source_options
@partial(world_options, interval_s=None)
@click.option(
    "--policy",
    "names",
    metavar="NAME[,...]",
    multiple=True,
    default=(BEST, Base(Config(), None).policy),
    show_default=True,
    callback=policies,
    help=f"Any of {', '.join(NAMES)}; {ALL}: every policy. May be given several times. "
    f"{BEST}: the one of {', '.join(SITES_RUN)} with the smallest average. "
    f"With --config: {BEST} and the policy of the site.",
)
@set_option
@click.option(
    "--thresholds",
    metavar="GPU-S[,...]",
    help="Thresholds between the tiers, in GPU-seconds (policy.thresholds_gpu_s).",
)
@click.option(
    "--reports",
    metavar="SHARE[:SIGMA[:LIARS]]",
    callback=reports_of,
    help="Percentage of jobs that report progress; the error of each report, a factor e^SIGMA; the "
    "percentage that always report to be nearly done.",
)
@click.option(
    "--limits",
    type=click.Choice(tuple(LIMIT_MODELS)),
    help="Time limits: "
    + "; ".join(f"{name}: {described}" for name, (_, described) in LIMIT_MODELS.items())
    + ".",
)
@click.option(
    "--who-pays",
    "by",
    type=click.Choice(tuple(BY)),
    help="Also show completion times relative to a fair share, and to the best baseline or "
    "stock Slurm if --policy has it, by these groups.",
)
@click.option(
    "--seeds",
    type=click.IntRange(1, MOST_SEEDS),
    default=1,
    show_default=True,
    help="Repeat with this many seeds of a generated workload, and of what is drawn for the jobs "
    "of a trace (saves, limits, reports), and show medians and ranges.",
)
@json_option
@click.option("--csv", "csv_file", type=FilePath, metavar="FILE", help="Write a line for each job.")
@click.option("--html", "html_file", type=FilePath, metavar="FILE", help="Write a page with plots.")
def simulate(
    base: Base,
    source: Source,
    world: World,
    names: Sequence[str],
    changes: tuple[str, ...],
    thresholds: str | None,
    reports: ReportModel | None,
    limits: str | None,
    by: str | None,
    seeds: int,
    as_json: bool,
    csv_file: Path | None,
    html_file: Path | None,
) -> None:
    """Replay a trace or a workload under one or several policies, and compare them.

    Without a source of jobs, the paper's 480 jobs are replayed. Decisions are made by the
    controller's own code, by default with its default configuration (--config); the baselines do
    not use it. All times are simulated.
    """
    source = source_or_paper480(source)
    if thresholds is not None:
        changes += (f"policy.thresholds_gpu_s=[{thresholds}]",)
    if world.interval_s:
        interval_s = checked_seconds("--interval", world.interval_s)
        changes += (f"controller.interval_s={interval_s}",)
    config = with_settings(base.config, changes)
    setup = replace(world.setup(world.site(), config), reports=reports)
    outputs = Outputs.checked(csv_file, html_file, (source.trace, Path(world.cluster), base.file))
    if seeds > 1 and (csv_file or html_file or by):
        raise UsageError(
            "--csv, --html and --who-pays show one seed, and --seeds asks for several",
            "Leave out --seeds, or the others",
        )
    compared = (
        replace(
            _compare(workload, world.cluster, _with_seed(setup, number), names, limits),
            config_file=base.named,
            preset=base.preset,
        )
        for number, workload in enumerate(source.load_seeds(setup.cluster, seeds))
    )
    report = next(compared)
    if seeds > 1:
        _show_seeds(report, [records(report), *map(records, compared)], as_json)
        return
    try:
        outputs.write(report)
    finally:
        # Even if the files cannot be written, the results are shown.
        _show(report, by, as_json)


def _with_seed(setup: run.Setup, seed: int) -> run.Setup:
    saves = setup.costs.saves and replace(setup.costs.saves, seed=seed)
    failures = setup.failures and replace(setup.failures, seed=seed)
    return replace(setup, costs=replace(setup.costs, saves=saves), failures=failures)


def _compare(
    workload: Workload, cluster: str, setup: run.Setup, names: Sequence[str], limits: str | None
) -> Report:
    workload, unfit = fitting(workload, setup.cluster, cluster)
    if limits is not None:
        workload = with_limits(workload, limits)
    speed = best_speed if setup.costs.speeds else unit_speed
    return Report(
        workload=workload,
        cluster=cluster,
        unfit=unfit,
        setup=setup,
        lower_bound_jct_s=lower_bound_jct_s(workload.jobs, setup.cluster.gpus, speed),
        results=tuple(_results(workload, names, setup)),
        fair_jct_s=fair_jct_s(workload.jobs, setup.cluster.gpus),
    )


def _results(workload: Workload, names: Sequence[str], setup: run.Setup) -> Iterator[Result]:
    """Yield the result of each policy."""
    simulated = cache(lambda name: _result(workload, name, setup))
    for name in names:
        if name == BEST:
            yield best_of([simulated(each) for each in to_choose_from(workload)])
        else:
            yield simulated(name)


def _result(workload: Workload, policy: str, setup: run.Setup) -> Result:
    with progress(policy, len(workload.jobs)) as advance:
        outcomes = run.simulate(workload, policy, setup, advance)
    return Result(policy, outcomes, figures(outcomes, setup.cluster.gpus))


def _show_seeds(report: Report, seeds: Sequence[Sequence[Record]], as_json: bool) -> None:
    """Show the medians and ranges of several seeds; ``report`` is the first seed's."""
    if as_json:
        found = {
            policy: {name: spread and asdict(spread) for name, spread in figures.items()}
            for policy, figures in spreads(seeds).items()
        }
        click.echo(json.dumps({"over_reference": found, "seeds": seeds}, allow_nan=False))
        return
    screen = stdout()
    screen.show(simulate_text.seeds_lines(report, seeds, screen))


def _show(report: Report, by: str | None, as_json: bool) -> None:
    if as_json:
        found = records(report)
        for record, result in zip(found, report.results, strict=True):
            record["who_pays"] = {
                each: [asdict(group) for group in who_pays(report, result, each)] for each in BY
            }
        click.echo(json.dumps(found, indent=2, allow_nan=False))
        return
    screen = stdout()
    screen.show(simulate_text.lines(report, screen))
    if by is not None:
        screen.show(simulate_text.who_pays_lines(report, by, screen))
