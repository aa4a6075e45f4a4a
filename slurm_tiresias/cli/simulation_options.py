"""The options of commands that simulate: which jobs, and on which cluster."""

from __future__ import annotations

import functools
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from slurm_tiresias.cli.options import named_config_path, remember_config
from slurm_tiresias.config import load, parse
from slurm_tiresias.errors import ConfigError, UsageError
from slurm_tiresias.settings import Config
from slurm_tiresias.settings.policy import GITTINS, LAS, ORDERS
from slurm_tiresias.simulator import run
from slurm_tiresias.simulator.baselines import BEST
from slurm_tiresias.simulator.engine import Timing
from slurm_tiresias.simulator.failures import NAMED, FailureModel
from slurm_tiresias.simulator.reports import ReportModel
from slurm_tiresias.simulator.saves import NEVER_S, ON_REQUEST_S, SaveModel
from slurm_tiresias.simulator.sim_cluster import PLACEMENTS, Costs, SimCluster, parse_cluster
from slurm_tiresias.simulator.traces import AUTO, FORMATS, load_trace
from slurm_tiresias.simulator.workload import PUBLISHED_SEED, Workload, paper480, philly_like
from slurm_tiresias.text import printable

Command = Callable[..., Any]

PHILLY_LOAD = 0.9
"""Default offered load of a generated ``philly-like`` workload."""
MOST_GENERATED = 1_000_000
MOST_SIGMA = 5.0


@dataclass(frozen=True, slots=True)
class Source:
    """Where the jobs come from: a trace, this cluster's accounting, or a generator."""

    trace: Path | None
    trace_format: str
    from_sacct: bool
    since: str | None
    until: str
    partition: str
    account: str
    workload: str | None

    def load(self, site: SimCluster) -> Workload:
        """Load the jobs. Raises ``UsageError`` unless exactly one source is named, and is valid."""
        named = sum((self.trace is not None, self.from_sacct, self.workload is not None))
        if named != 1:
            raise UsageError(
                "Name one source of jobs" if named else "No jobs are named",
                "Give --trace FILE, or --from-sacct --since DATE, or --workload NAME",
            )
        if self.from_sacct != (self.since is not None):
            raise UsageError(
                "--from-sacct and --since belong together", "Give both, like --since 2026-01-31"
            )
        if self.since is None and (self.until or self.partition or self.account):
            raise UsageError(
                "--until, --partition and --account choose from the accounting",
                "Give --from-sacct --since DATE with them",
            )
        if self.trace is not None:
            return load_trace(self.trace, self.trace_format)
        if self.since is not None:
            from slurm_tiresias.simulator.history import from_sacct

            return from_sacct(
                self.since, until=self.until, partition=self.partition, account=self.account
            )
        return generated(self.workload or "", site)

    def load_seeds(self, site: SimCluster, seeds: int) -> Iterator[Workload]:
        """Yield the jobs generated with this many successive seeds; the jobs of a trace remain the
        same, but what is drawn for them differs."""
        first = self.load(site)
        yield first
        for later in range(1, seeds):
            if self.workload is None:
                yield replace(first, name=f"{first.name}, draw {later + 1}")
            else:
                yield generated(self.workload, site, later)


def generated(name: str, site: SimCluster, later: int = 0) -> Workload:
    """Generate ``paper480[:SEED]`` or, for the cluster, ``philly-like:JOBS[:SEED][@LOAD]``, with
    a seed that comes ``later`` than the named one."""
    seed = r"(?::(?P<seed>\d{1,9}))?"
    load = r"(?:@(?P<load>\d{1,2}(?:\.\d{1,3})?))?"
    paper = re.fullmatch(rf"paper480{seed}", name)
    if paper:
        return paper480(int(paper["seed"] or PUBLISHED_SEED) + later)
    philly = re.fullmatch(rf"philly-like:(?P<jobs>\d{{1,7}}){seed}{load}", name)
    jobs, offered = (
        (int(philly["jobs"]), float(philly["load"] or PHILLY_LOAD)) if philly else (0, 0)
    )
    if philly is None or not 0 < jobs <= MOST_GENERATED or not offered > 0:
        raise UsageError(
            f"{name!r} is not a workload",
            "Write paper480[:SEED], or philly-like:JOBS[:SEED][@LOAD], up to a million jobs",
        )
    return philly_like(jobs, int(philly["seed"] or PUBLISHED_SEED) + later, site.gpus, offered)


_REPORTS = re.compile(r"(\d{1,3})%?(?::(\d{1,2}(?:\.\d{1,4})?))?(?::(\d{1,3})%?)?")


def reports_of(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> ReportModel | None:
    """Parse ``--reports SHARE[:SIGMA[:LIARS]]``, as its callback; shares are in percent."""
    if value is None:
        return None
    match = _REPORTS.fullmatch(value)
    share, sigma, liars = (float(part or 0) for part in match.groups()) if match else (101, 0, 0)
    if share + liars > 100 or sigma > MOST_SIGMA:
        raise UsageError(
            f"--reports {printable(value)!r} is not a valid share of jobs",
            f"Write SHARE[:SIGMA[:LIARS]], like 50 or 50:0.5:25: percent of the jobs that report, "
            f"by which factor e^SIGMA they err (0 to {MOST_SIGMA:g}), percent that lie",
        )
    return ReportModel(share / 100, sigma, liars / 100)


LOSSLESS_SAVES = "none"
_SAVES = re.compile(r"(asked|never|[1-9]\d{0,4})=(\d{1,3})")


def _save_interval_s(when: str) -> float:
    if when == "asked":
        return ON_REQUEST_S
    return NEVER_S if when == "never" else 60.0 * int(when)


def saves_of(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> SaveModel | None:
    """Parse ``--saves WHEN=SHARE[,...][@TOLD]``, as its callback; shares are in percent."""
    if value is None or value == LOSSLESS_SAVES:
        return None
    mix, at, told = value.partition("@")
    kinds = [_SAVES.fullmatch(part) for part in mix.split(",")]
    shares = tuple(
        (_save_interval_s(kind[1]), int(kind[2]) / 100) for kind in kinds if kind is not None
    )
    percent = (int(told) if re.fullmatch(r"\d{1,3}", told) else 101) if at else 100
    whole = math.isclose(sum(share for _, share in shares), 1.0)
    if None in kinds or not whole or percent > 100:
        raise UsageError(
            f"--saves {printable(value)!r} does not say how programs save",
            "Write WHEN=PERCENT[,...][@PERCENT], like asked=40,5=30,120=30@50: WHEN is asked, "
            "never or minutes; the shares are 100 in all; after @, the percentage that reports its "
            f"saves. Or write {LOSSLESS_SAVES}",
        )
    return SaveModel(shares, percent / 100)


def failures_of(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> FailureModel | None:
    """Parse ``--failures RATE``, as its callback."""
    if value is None:
        return None
    rate = NAMED.get(value) or (float(value) if re.fullmatch(r"\d{1,4}(\.\d+)?", value) else 0.0)
    if not rate:
        raise UsageError(
            f"--failures {printable(value)!r} is no rate",
            f"Write failures per 1,000 node-days above 0, or one of: {', '.join(NAMED)}",
        )
    return FailureModel(rate)


@dataclass(frozen=True, slots=True)
class World:
    """The simulated cluster, and the overheads of jobs on it."""

    cluster: str
    placement: str
    overhead: str
    interval_s: float | None
    saves: SaveModel | None
    failures: FailureModel | None

    def site(self) -> SimCluster:
        return parse_cluster(self.cluster, self.placement)

    def setup(self, site: SimCluster, config: Config) -> run.Setup:
        """Return the setup; raises ``UsageError`` for an invalid overhead."""
        costs = Costs(site, self.overhead != "none", flat_s(self.overhead), self.saves)
        interval_s = config.controller.interval_s if self.interval_s is None else self.interval_s
        return run.Setup(site, config, costs, Timing(interval_s), failures=self.failures)


@dataclass(frozen=True, slots=True)
class Base:
    """The base configuration of a simulation, and the file or preset that it came from."""

    config: Config
    file: Path | None
    preset: str | None = None

    @property
    def named(self) -> str | None:
        """The name of the file in a report."""
        return None if self.file is None else str(self.file)

    @property
    def policy(self) -> str:
        """Its policy, by the name used in simulations."""
        policy = self.config.policy
        return {LAS: "tiresias-l", GITTINS: "tiresias-g"}.get(policy.name, policy.name)


PAPER = "paper"
_PRESET_KEY = f"{__name__}.preset"


def base_option(command: Command) -> Command:
    """Add the option ``--config``; the command gets a ``Base`` as ``base``.

    Only a file named on the command line counts: the result must not depend on whether the machine
    happens to have a controller's configuration.
    """
    return click.option(
        "--config",
        "base",
        metavar="FILE",
        is_eager=True,
        callback=_base,
        help="Configuration of a site, whose policy, protections and interval are simulated unless "
        "an option overrides them.",
    )(command)


def _base(context: click.Context, parameter: click.Parameter, value: str | None) -> Base:
    remember_config(context, parameter, value)
    file = named_config_path(context)
    if file is None:
        return Base(unprotected(), None)
    base = Base(load(file), file)
    interval_s = base.config.controller.interval_s
    context.default_map = {"policy": base.policy, "interval_s": interval_s}
    return base


def deployed_options(command: Command) -> Command:
    """Add the options ``--config`` and ``--preset``; the command gets a ``Base`` as ``base``.

    Without either, it is the default configuration.
    """
    command = click.option(
        "--preset",
        type=click.Choice([PAPER]),
        is_eager=True,
        expose_value=False,
        callback=_preset,
        help="The settings of the paper's testbed: two tiers cut at "
        f"{PAPER_GPU_S:g} GPU-seconds, decisions at every event, no protections, no work lost; "
        f"policies {', '.join(PAPER_POLICIES)}.",
    )(command)
    return click.option(
        "--config",
        "base",
        metavar="FILE",
        is_eager=True,
        callback=_deployed,
        help="Configuration of a site, whose policy, protections and interval are simulated unless "
        "an option overrides them. Default: the default configuration.",
    )(command)


def _preset(context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.meta[_PRESET_KEY] = value
        _check_not_both(context)


def _deployed(context: click.Context, parameter: click.Parameter, value: str | None) -> Base:
    remember_config(context, parameter, value)
    _check_not_both(context)
    preset = context.meta.get(_PRESET_KEY)
    if preset is not None:
        context.default_map = {"names": PAPER_POLICIES, "interval_s": 0.0, "saves": LOSSLESS_SAVES}
        return Base(paper_config(), None, preset)
    file = named_config_path(context)
    base = Base(Config() if file is None else load(file), file)
    context.default_map = {"names": (BEST, base.policy)}
    return base


def _check_not_both(context: click.Context) -> None:
    if _PRESET_KEY in context.meta and named_config_path(context) is not None:
        raise UsageError("--preset and --config contradict each other", "Give one of them")


PAPER_POLICIES = ("yarn-cs", "srtf", "tiresias-g", "tiresias-l")
PAPER_GPU_S = 3200.0


def paper_config() -> Config:
    """Return the settings of the paper's testbed (pages 493 and 495)."""
    policy = replace(Config().policy, thresholds_gpu_s=(PAPER_GPU_S,), order=ORDERS[0])
    return replace(unprotected(), policy=policy)


def unprotected() -> Config:
    """Return the default configuration without the protections, which the paper does not have."""
    return parse({"preemption": {"min_run_s": 0, "budget_share": 0}}, "the command line")


def set_option(command: Command) -> Command:
    """Add the option ``--set``; the command gets the texts as ``changes``."""
    return click.option(
        "--set",
        "changes",
        multiple=True,
        metavar="TABLE.SETTING=VALUE",
        help="Change a setting of the configuration, like policy.order=newest or "
        "policy.thresholds_gpu_s=[3200]. May be given several times.",
    )(command)


def with_settings(base: Config, changes: Sequence[str]) -> Config:
    """Return the configuration with each ``--set`` applied. Raises ``UsageError``."""
    tables = {
        table: {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in settings.items()
        }
        for table, settings in asdict(base).items()
    }
    for text in changes:
        match = re.fullmatch(r"\s*([a-z_]+)\.([a-z_]+)\s*=(.*)", text)
        if match is None:
            raise UsageError(
                f"--set {printable(text)!r} names no setting",
                "Write TABLE.SETTING=VALUE, like policy.order=newest",
            )
        table, name, value = match.groups()
        tables.setdefault(table, {})[name] = _value(value)
    try:
        return parse(tables, "the command line")
    except ConfigError as error:
        raise UsageError(error.what, error.remedy) from error


def _value(text: str) -> object:
    """Parse a value as in TOML; text needs no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text.strip()


def flat_s(overhead: str) -> float | None:
    """Parse ``model`` (None), ``none`` (0), or seconds. Raises ``UsageError``."""
    if overhead == "model":
        return None
    if overhead == "none":
        return 0.0
    try:
        seconds = float(overhead)
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds < 1e9:
        raise UsageError(
            f"--overhead {printable(overhead)!r} is not a cost of a preemption",
            "Write model, none, or seconds, at least 0 and below 1000000000",
        )
    return seconds


def fitting(workload: Workload, site: SimCluster, cluster: str) -> tuple[Workload, int]:
    """Return the jobs that the cluster can run, and the number of the others.

    Its notes then also say how GPU types that no node has are treated. Raises ``UsageError`` if no
    job is left.
    """
    kept, unfit = run.fitting(workload, site)
    if not kept.jobs:
        raise UsageError(
            f"No job of {printable(workload.name)} can run on {printable(cluster)}",
            "Name a --cluster that is large enough and has the requested GPUs",
        )
    notes = (*workload.notes, *site.notes(workload.jobs))
    return replace(kept, notes=notes), len(unfit)


def source_options(command: Command) -> Command:
    """Add the options for the jobs; the command gets a ``Source`` as ``source``."""
    return together(
        command,
        "source",
        Source,
        click.option(
            "--trace",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="A file of recorded jobs.",
        ),
        click.option(
            "--format",
            "trace_format",
            type=click.Choice([AUTO, *FORMATS]),
            metavar="NAME",
            default=AUTO,
            show_default=True,
            help=f"Format of that file: {', '.join(FORMATS)}; {AUTO}: from its first line.",
        ),
        click.option("--from-sacct", is_flag=True, help="The jobs in this cluster's accounting."),
        click.option("--since", metavar="DATE", help="Start of that history, as for sacct."),
        click.option("--until", metavar="DATE", default="", help="Its end. Default: now."),
        click.option("--partition", metavar="NAMES", default="", help="Only these partitions."),
        click.option("--account", metavar="NAMES", default="", help="Only these accounts."),
        click.option(
            "--workload",
            metavar="NAME",
            help="A generated workload: paper480[:SEED] or philly-like:JOBS[:SEED][@LOAD].",
        ),
    )


def world_options(command: Command, interval_s: float | None = 0.0) -> Command:
    """Add the options for the cluster and overheads; the command gets a ``World`` as ``world``."""
    return together(
        command,
        "world",
        World,
        click.option(
            "--cluster",
            metavar="NxG|FILE",
            default="15x4",
            show_default=True,
            help="N nodes of G GPUs, or a file that describes them.",
        ),
        click.option(
            "--placement",
            type=click.Choice(PLACEMENTS),
            default="skew",
            show_default=True,
            help="skew: by the skew of each job's model; consolidate, spread, random: all jobs "
            "alike; pooled: as if all GPUs were in one node.",
        ),
        click.option(
            "--overhead",
            metavar="model|none|SECONDS",
            default="model",
            show_default=True,
            help="Cost of a preemption: as measured in the paper, none, or a number of seconds.",
        ),
        click.option(
            "--interval",
            "interval_s",
            type=click.FloatRange(min=0),
            metavar="SECONDS",
            default=interval_s,
            show_default=True,
            help="Time between two decisions; 0: a decision at every event.",
        ),
        click.option(
            "--saves",
            metavar=f"WHEN=SHARE[,...][@TOLD]|{LOSSLESS_SAVES}",
            callback=saves_of,
            default="asked=40,30=40,never=20@0",
            show_default=True,
            help="How programs save: by default 40 % on request, 40 % every 30 minutes, 20 % "
            "never. TOLD: percentage that report their saves (100 if left out). "
            f"{LOSSLESS_SAVES}: all save on request, so that preemption loses no work.",
        ),
        click.option(
            "--failures",
            metavar=f"{'|'.join(NAMED)}|RATE",
            callback=failures_of,
            help="Let nodes fail so often in 1,000 node-days, and lose what jobs have not saved: a "
            "number, or as measured on Meta's clusters RSC-1 (6.5) and RSC-2 (2.34).",
        ),
    )


def together(
    command: Command, name: str, made: type[Any], *options: Callable[[Command], Command]
) -> Command:
    """Pass the values of several options to the command as one dataclass, ``made``."""

    @functools.wraps(command)
    def taking_options(**values: Any) -> Any:
        own = {field: values.pop(field) for field in made.__dataclass_fields__}
        return command(**values, **{name: made(**own)})

    whole: Command = taking_options
    for option in reversed(options):
        whole = option(whole)
    return whole
