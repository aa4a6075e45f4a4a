"""The configuration: ``tiresias.toml`` as frozen dataclasses.

Each setting is declared here or in ``settings`` with its meaning, unit, default and range; the
reference page and the example file are generated from that (``scripts/dev generate``).
"""

from __future__ import annotations

import dataclasses
import math
import re
import signal
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from slurm_tiresias.errors import ConfigError
from slurm_tiresias.settings import Setting, setting
from slurm_tiresias.settings.idle_gpus import IdleGpusConfig

LEAST_SLOWDOWN = 1.5
"""The smallest bound on the slowdown that leaves the controller any choice."""

MAX_TIERS = 8
"""More tiers than have been shown to help; bounds the number of priority bands."""

LAS, GITTINS = "2d-las", "2d-gittins"
POLICIES = (LAS, GITTINS)
ESTIMATES = ("reports", "history", "limits")
REPORTS, HISTORY, LIMITS = ESTIMATES
CHARGES = ("job", "user", "account")
ORDERS = ("first-start", "entry", "running-first", "newest")
LEAST_LOSS = "least-loss"
VICTIMS = (LEAST_LOSS, "fewest-gpus")
MODES = ("shadow", "enforce")
PRIORITY_WRITES = ("pinned", "site-factor")
STYLES = ("consolidate", "spread")
DRIVERS = ("auto", "commands", "pyslurm")

T = TypeVar("T")


@dataclass(frozen=True)
class ManageConfig:
    """Which jobs are managed. Others are never preempted; they lose a priority of a tier."""

    partitions: tuple[str, ...] = setting(
        ("gpu",),
        "Partitions whose GPU jobs are managed. A job is managed if it can run in these "
        "partitions only.",
    )
    exclude_users: tuple[str, ...] = setting((), "Users whose jobs are not managed.")
    exclude_accounts: tuple[str, ...] = setting((), "Accounts whose jobs are not managed.")
    exclude_qos: tuple[str, ...] = setting((), "QOS whose jobs are not managed.")


@dataclass(frozen=True)
class PolicyConfig:
    """How attained service becomes a tier, and the order inside a tier."""

    name: str = setting(
        "2d-las",
        "2d-las uses only the attained service. 2d-gittins orders each tier but the last by the "
        "Gittins index, learned from jobs that have ended.",
        choices=POLICIES,
    )
    estimates: tuple[str, ...] = setting(
        (REPORTS,),
        "Sources for a job's remaining service; the first that has an estimate is used. A job with "
        "an estimate gets the tier of its remaining service, any other that of its attained "
        "service. reports: the job's own progress reports, while they prove true. history: earlier "
        "jobs of the same user and name. limits: the share of their time limits that the user's "
        "jobs used (docs/explanation/algorithm.md).",
        choices=ESTIMATES,
    )
    thresholds_gpu_s: tuple[float, ...] = setting(
        (3600.0, 18_000.0, 90_000.0, 450_000.0, 2_250_000.0),
        "Attained service at which a job moves down a tier, in ascending order; one threshold "
        "makes two tiers. The paper has one, 3200 or 3600. Several, far apart, suit jobs that "
        "differ by orders of magnitude (docs/how-to/simulate.md).",
        unit="GPU-seconds",
        minimum=1e-3,
    )
    order: str = setting(
        "first-start",
        "Order inside a tier. first-start (the paper's): by first start; jobs that never ran come "
        "last. entry: by the time of entering the tier. running-first: by the start of the current "
        "wait. newest: by the time of entering the tier, the latest first.",
        choices=ORDERS,
    )
    promote_knob: float = setting(
        0.0,
        "A waiting job is promoted to the top tier when its waiting time is this multiple of its "
        "running time since its last promotion (paper page 491, PROMOTEKNOB). Each promotion "
        "doubles the factor. 0: no promotion.",
        minimum=0,
    )
    promote_floor_s: float = setting(
        3600.0,
        "A job is not promoted before it has waited this long. Without a floor, wide jobs cycle "
        "between the tiers.",
        unit="seconds",
        minimum=0,
    )
    max_slowdown: float = setting(
        0.0,
        "Bound on a job's completion time, as a multiple of the time that it would take if all "
        "jobs shared the GPUs evenly. A waiting job at its bound goes before all others; a running "
        "job near its bound is not preempted (docs/explanation/algorithm.md). 0: no bound; "
        "otherwise at least 1.5.",
        minimum=0,
        maximum=1000,
    )
    charge: str = setting(
        "job",
        "Whose service selects a job's tier. job: its own. user: also that of the user's other "
        "runs that ended within charge_window_s before its first start, so that work split into "
        "many jobs stays in its tier. account: the same for the job's account, or for its user if "
        "it has none (docs/explanation/algorithm.md).",
        choices=CHARGES,
    )
    charge_window_s: float = setting(
        86_400.0,
        "How long a finished run counts for later jobs of its user or account if charge is user "
        "or account.",
        unit="seconds",
        minimum=1,
    )
    gittins_samples: int = setting(
        100,
        "Jobs that must have ended before the Gittins index is used; until then 2d-gittins orders "
        "like 2d-las.",
        unit="jobs",
        minimum=2,
    )
    report_every_s: float = setting(
        60.0,
        "Time that a job must have run before its reports are used, and the shortest time between "
        "two reports.",
        unit="seconds",
        minimum=0.1,
    )
    history_samples: int = setting(
        1,
        "Number of ended jobs of the same user and name, or else of the same user, that an "
        "estimate by history needs.",
        unit="jobs",
        minimum=1,
    )


@dataclass(frozen=True)
class PreemptionConfig:
    """What protects a running job from preemption, and what warning it gets."""

    min_run_s: float = setting(
        120.0,
        "A job is not preempted before it has run this long since its last start.",
        unit="seconds",
        minimum=0,
    )
    drilled_min_run_s: float = setting(
        0.0,
        "min_run_s for programs (jobs of one user and name) that passed tiresias-slurm drill in "
        "the last 90 days. It does not apply after a failed drill, or while the program's last "
        "preemption lost all its work. 0: as for all others.",
        unit="seconds",
        minimum=0,
    )
    min_run_growth: float = setting(
        2.0,
        "Each preemption multiplies a job's minimum run time by this, up to max_min_run_s, so "
        "that its runs become long enough to save in. 1: no growth.",
        minimum=1,
        maximum=16,
    )
    max_min_run_s: float = setting(
        3600.0,
        "The longest minimum run time that a job gets by being preempted.",
        unit="seconds",
        minimum=0,
    )
    max_per_job: int = setting(
        0,
        "A job that was preempted this often is not preempted again. 0: no limit.",
        unit="preemptions",
        minimum=0,
    )
    budget_share: float = setting(
        0.1,
        "Share of the managed GPU time in budget_window_s that the jobs of one user may cost "
        "others by preemption. A preempted run counts with its length, up to 5 minutes, times its "
        "GPUs; a late exit (max_grace_s) counts with that time. Beyond its budget a user preempts "
        "no job, and starts on idle GPUs only. 0: no limit.",
        minimum=0,
        maximum=1,
    )
    budget_window_s: float = setting(
        3600.0,
        "The time window of budget_share.",
        unit="seconds",
        minimum=1,
    )
    victims: str = setting(
        LEAST_LOSS,
        "How victims are chosen inside a tier. least-loss: the least GPU time wasted, by the work "
        "since the last save and the cost of a restart; if nothing is known, the fewest GPUs. "
        "fewest-gpus: the fewest GPUs, whatever is lost.",
        choices=VICTIMS,
    )
    wait_for_save_s: float = setting(
        7200.0,
        "For a job below the first tier, no victim is preempted whose next save is due within this "
        "time; after each save there is a tenth of its save interval in which it may be preempted. "
        "0: do not wait for saves.",
        unit="seconds",
        minimum=0,
        maximum=86_400,
    )
    first_tier_wait_s: float = setting(
        600.0,
        "wait_for_save_s for a job of the first tier, which waits less: after each save there is "
        "half of the victim's save interval in which it may be preempted.",
        unit="seconds",
        minimum=0,
        maximum=86_400,
    )
    max_victims_per_interval: int = setting(
        100,
        "Most jobs preempted in one controller.interval_s. A job that needs more takes those of "
        "later intervals in advance.",
        unit="jobs",
        minimum=0,
    )
    signal: str = setting(
        "",
        "Signal sent to every process of a job before its requeue, so that it can save, e.g. "
        "USR1. A program that does not handle the signal may die of it. Empty: none; the requeue "
        "itself sends SIGTERM and, KillWait later, SIGKILL.",
    )
    grace_s: float = setting(
        0.0,
        "Time between that signal and the requeue. All victims of one preemptor are requeued "
        "together, once the last has saved or its time is over.",
        unit="seconds",
        minimum=0,
        maximum=3600,
    )
    max_grace_s: float = setting(
        120.0,
        "The longest grace period for a job that names its own signal and time "
        "(--tiresias-checkpoint). The time beyond grace_s counts for budget_share; beyond that "
        "budget a user gets grace_s.",
        unit="seconds",
        minimum=0,
        maximum=3600,
    )
    save_grace_s: float = setting(
        60.0,
        "A job without a signal that uses the job library is asked to save before its requeue, by "
        "SIGURG, which other programs ignore. It is requeued once it has saved, after this time "
        "at the latest, or after max_grace_s if that is shorter. 0: jobs are not asked.",
        unit="seconds",
        minimum=0,
        maximum=3600,
    )
    start_bound_s: float = setting(
        60.0,
        "A nomination expires if its GPUs have been idle this long and its job has not started, or "
        "after max_grace_s and five times this if its nodes stay in use, as when an epilog hangs.",
        unit="seconds",
        minimum=1,
    )
    retry_after_s: float = setting(
        600.0,
        "After its nomination expired, a job preempts nothing until its request or one of its "
        "nodes changes, or this time has passed. Each further expiration doubles the time, up to "
        "eightfold.",
        unit="seconds",
        minimum=1,
    )


@dataclass(frozen=True)
class InteractiveConfig:
    """How much of the top tier salloc and srun get (docs/how-to/limits.md)."""

    gpus_per_user: int = setting(
        1,
        "GPUs of one user's salloc and srun jobs that start in the top tier, preempt lower tiers "
        "and are not preempted. Further ones use idle GPUs only. 0: all use idle GPUs only.",
        unit="GPUs",
        minimum=0,
    )
    gpu_hours_per_user: float = setting(
        8.0,
        "GPU-hours that these jobs may use in any 24 hours. A running job counts with its whole "
        "time limit; a job without a limit uses idle GPUs only.",
        unit="GPU hours",
        minimum=0,
    )


@dataclass(frozen=True)
class PlacementConfig:
    """Which nodes a job gets when there is a choice (paper page 491, section 3.3)."""

    pack_limit: float = setting(
        0.5,
        "A model is skewed, and placed on few nodes, if its largest tensor is a larger share of "
        "it than this. Values from 0.15 to 0.60 split the paper's ten models alike.",
        minimum=0,
        maximum=1,
    )
    unknown_model: str = setting(
        "consolidate",
        "Placement of jobs whose model has no profile.",
        choices=STYLES,
    )


@dataclass(frozen=True)
class ProfilerConfig:
    """How the program finds out which models are skewed (docs/how-to/placement.md)."""

    collect_dir: str = setting(
        "",
        "Directory for the nodes' observations of messages and GPU use: the one that "
        "plugstack.conf names with collect=. The nodes also read there which models are known. "
        "Empty: nothing is learned from running jobs.",
    )
    least_message_mb: float = setting(
        50.0,
        "A model is skewed only if its largest tensor or message has at least this size. "
        "Gradients in buckets of 25 MB are larger only if a single tensor is.",
        unit="megabytes of 1048576 bytes",
        minimum=0,
        maximum=1e6,
    )
    fit_models: int = setting(
        10,
        "Programs that must have been observed in both placements before placement.pack_limit is "
        "fitted to the measured cost of spreading (paper page 491). 0: never.",
        unit="programs",
        minimum=0,
    )


@dataclass(frozen=True)
class PriorityConfig:
    """How tiers are written to Slurm."""

    write: str = setting(
        "pinned",
        "pinned: an explicit priority, so that the tier decides everything. site-factor: a term "
        "of Slurm's multifactor priority, so that fairshare and age order the jobs of a tier.",
        choices=PRIORITY_WRITES,
    )


@dataclass(frozen=True)
class SlurmConfig:
    """How the controller reaches Slurm (docs/how-to/operate.md)."""

    driver: str = setting(
        "commands",
        "commands: squeue, scontrol and others, on every release. pyslurm: read jobs and nodes "
        "and write priorities through pyslurm, which must be installed and built for this "
        "release. auto: pyslurm if it works, else commands.",
        choices=DRIVERS,
    )


@dataclass(frozen=True)
class ControllerConfig:
    """How the controller runs."""

    mode: str = setting(
        "shadow",
        "shadow: decide and record, but write nothing to Slurm. enforce: act on Slurm.",
        choices=MODES,
    )
    interval_s: float = setting(
        10.0,
        "Time between two cycles.",
        unit="seconds",
        minimum=0.2,
        maximum=3600,
    )
    state_dir: str = setting(
        "/var/lib/slurm-tiresias",
        "Directory of the ledger, the lock, the sockets and the published state. Only the "
        "controller writes there.",
    )
    keep_ended_jobs_days: float = setting(
        400.0,
        "How long the ledger keeps ended jobs, with their runs, preemptions and events, for "
        "history and report. Older ones are removed while the controller is idle; user, name and "
        "service of the last 100,000 stay, for policies that learn. 0: keep all, 260 MB for each "
        "million jobs.",
        unit="days",
        minimum=0,
    )
    nudge_file: str = setting(
        "/run/slurm-tiresias-controller/nudge",
        "File that Slurm's hooks write to make the controller run a cycle at once "
        "(etc/job_submit.lua, etc/nudge). Use a local file system, since slurmctld waits for the "
        "write. Empty: none.",
    )
    standby: bool = setting(
        False,
        "Whether two controllers on two hosts share this state_dir, one of them standing by "
        "(docs/how-to/operate.md). Both hosts must see its file system.",
    )
    host: str = setting(
        "",
        "Name of this host in SlurmctldHost of slurm.conf. Of two controllers, the one on the "
        "host of the active slurmctld acts. Empty: the host's short name.",
    )
    command_timeout_s: float = setting(
        30.0,
        "Time after which a Slurm command without an answer counts as failed.",
        unit="seconds",
        minimum=1,
        maximum=600,
    )


@dataclass(frozen=True)
class HttpConfig:
    """What is served over HTTP: a live page at /, metrics at /metrics (docs/how-to/monitor.md)."""

    listen: str = setting(
        "",
        "Address and port, such as 127.0.0.1:9817 or [::1]:9817. There is no password: use a "
        "loopback address unless something else guards the port. Empty: nothing listens.",
    )
    names: tuple[str, ...] = setting(
        (),
        "Names under which browsers and Prometheus reach this host, besides localhost and "
        "addresses. Requests under other names are refused, so that a foreign page cannot read "
        "the answers (DNS rebinding).",
    )


@dataclass(frozen=True)
class Config:
    """The whole configuration file; each field is one of its tables."""

    manage: ManageConfig = ManageConfig()
    policy: PolicyConfig = PolicyConfig()
    preemption: PreemptionConfig = PreemptionConfig()
    interactive: InteractiveConfig = InteractiveConfig()
    placement: PlacementConfig = PlacementConfig()
    profiler: ProfilerConfig = ProfilerConfig()
    idle_gpus: IdleGpusConfig = IdleGpusConfig()  # noqa: RUF009 - immutable
    priority: PriorityConfig = PriorityConfig()
    slurm: SlurmConfig = SlurmConfig()
    controller: ControllerConfig = ControllerConfig()
    http: HttpConfig = HttpConfig()

    @property
    def tier_count(self) -> int:
        return len(self.policy.thresholds_gpu_s) + 1


def load(path: Path) -> Config:
    """Read a configuration file; raises ``ConfigError``, which names the setting and the remedy."""
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not a text file (byte {error.start})", "Write it in UTF-8"
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}",
            "Name a readable file with --config or in TIRESIAS_CONFIG",
        ) from error
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also integers of thousands of digits
        raise ConfigError(f"{path} is not valid TOML: {error}", "Correct that line") from error
    return parse(tables, str(path))


def parse(tables: Mapping[str, Any], source: str = "the configuration") -> Config:
    """Turn tables as ``tomllib`` gives them into a ``Config``; raises ``ConfigError``."""
    config = _parse_table(Config, tables, source, _parse_section)
    try:
        _check_thresholds(config.policy.thresholds_gpu_s)
        _check_slowdown(config.policy.max_slowdown)
        _check_drilled(config.preemption)
        _check_signal(config.preemption)
        _check_interactive(config.interactive)
        config.idle_gpus.check(config.profiler.collect_dir)
        _check_places(config)
        _check_listen(config.http.listen)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error.what}", error.remedy) from error
    return config


def _parse_section(wanted: Any, field: Setting, value: Any, source: str) -> Any:
    if not isinstance(value, dict):
        raise ConfigError(
            f"{source}: {field.name} is a table", f"Write [{field.name}] and its settings below"
        )
    return _parse_table(wanted, value, f"{source}: [{field.name}]", _parse_setting)


def _parse_table(
    table: type[T],
    values: Mapping[str, Any],
    source: str,
    parse_value: Callable[[Any, Setting, Any, str], Any],
) -> T:
    types = get_type_hints(table)
    fields = {field.name: field for field in dataclasses.fields(table)}  # type: ignore[arg-type]
    for name in values:
        if name not in fields:
            close = get_close_matches(name, fields, n=1)
            hint = f"Perhaps {close[0]!r} was meant" if close else f"There are: {', '.join(fields)}"
            raise ConfigError(f"{source} has no setting {name!r}", hint)
    return table(
        **{
            name: parse_value(types[name], fields[name], value, source)
            for name, value in values.items()
        }
    )


def _parse_setting(wanted: Any, field: Setting, value: Any, source: str) -> Any:
    try:
        setting_value = _read(wanted, value)
    except (TypeError, ValueError, OverflowError):
        kind, unit = _KINDS[wanted], field.metadata["unit"]
        written = str(value).lower() if isinstance(value, bool) else repr(value)
        raise ConfigError(
            f"{source} {field.name} = {written} is not {kind}",
            f"Write {kind}{f' ({unit}, without the unit)' if unit else ''}",
        ) from None
    _check_range(field, setting_value, source)
    return setting_value


_KINDS: Mapping[Any, str] = {
    str: "text in quotes",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    tuple[str, ...]: "a list of texts",
    tuple[float, ...]: "a list of numbers",
}


def _read(wanted: Any, value: Any) -> Any:
    """Convert a value to its setting's type; raise ``TypeError`` or ``ValueError`` if it has
    another type, is text with control characters, or is a number that is not finite."""
    if get_origin(wanted) is tuple:
        if not isinstance(value, list):
            raise TypeError
        return tuple(_read(get_args(wanted)[0], item) for item in value)
    # In Python, a bool is an int too.
    if isinstance(value, bool) is not (wanted is bool):
        raise TypeError
    if not isinstance(value, int | float if wanted is float else wanted):
        raise TypeError
    if isinstance(value, str) and any(ord(character) < 32 for character in value):
        raise ValueError
    if wanted is not float:
        return value
    if not math.isfinite(value):
        raise ValueError
    return float(value)


def _check_range(field: Setting, value: Any, source: str) -> None:
    choices = field.metadata.get("choices", ())
    values = value if isinstance(value, tuple) else (value,)
    for one in values:
        if choices and one not in choices:
            raise ConfigError(
                f"{source} {field.name} = {one!r} is none of its choices",
                f"Write {'any' if isinstance(value, tuple) else 'one'} of: {', '.join(choices)}",
            )
    if choices and len(set(values)) < len(values):
        raise ConfigError(f"{source} {field.name} names one twice", "Name each once")
    low, high = field.metadata.get("minimum"), field.metadata.get("maximum")
    for number in values:
        too_low = low is not None and number < low
        too_high = high is not None and number > high
        if too_low or too_high:
            bound = f"at least {low:g}" if too_low else f"at most {high:g}"
            raise ConfigError(
                f"{source} {field.name} = {number:g} is out of range",
                f"Write {bound} {field.metadata['unit']}".rstrip(),
            )


def _check_thresholds(thresholds_gpu_s: tuple[float, ...]) -> None:
    if any(b <= a for a, b in pairwise(thresholds_gpu_s)):
        written = ", ".join(f"{t:g}" for t in thresholds_gpu_s)
        raise ConfigError(
            f"policy.thresholds_gpu_s = [{written}] is not ascending",
            "Write each threshold larger than the one before",
        )
    if not 1 <= len(thresholds_gpu_s) < MAX_TIERS:
        raise ConfigError(
            f"policy.thresholds_gpu_s has {len(thresholds_gpu_s)} thresholds",
            f"Write 1 to {MAX_TIERS - 1}",
        )


def _check_slowdown(times: float) -> None:
    if 0 < times < LEAST_SLOWDOWN:
        raise ConfigError(
            f"policy.max_slowdown = {times:g} leaves no room: a job could hardly ever wait",
            f"Write at least {LEAST_SLOWDOWN:g}, or 0 for no bound",
        )


def _check_drilled(preemption: PreemptionConfig) -> None:
    if preemption.drilled_min_run_s > preemption.min_run_s:
        raise ConfigError(
            f"preemption.drilled_min_run_s = {preemption.drilled_min_run_s:g} is longer than "
            f"preemption.min_run_s = {preemption.min_run_s:g}",
            "Write less than that: it is for programs that may be preempted sooner",
        )


def _check_signal(preemption: PreemptionConfig) -> None:
    name = preemption.signal
    if name and f"SIG{name.removeprefix('SIG')}" not in signal.Signals.__members__:
        raise ConfigError(f"preemption.signal = {name!r} is not a signal", "Write a name like USR1")
    if preemption.grace_s > 0 and not name:
        raise ConfigError(
            "preemption.grace_s is set without preemption.signal",
            "Name the signal that asks a job to save its state, or set grace_s = 0",
        )


def _check_interactive(interactive: InteractiveConfig) -> None:
    gpus, hours = interactive.gpus_per_user, interactive.gpu_hours_per_user
    if gpus > 0 and hours == 0:
        raise ConfigError(
            f"interactive.gpus_per_user = {gpus} contradicts gpu_hours_per_user = 0, which gives "
            "users no time on these GPUs",
            "Write how many GPU hours they have a day, or set gpus_per_user = 0",
        )
    if 0 < gpus * 24 < hours:
        raise ConfigError(
            f"interactive.gpu_hours_per_user = {hours:g} is more than gpus_per_user = {gpus} "
            "can use in 24 hours",
            f"Write at most {gpus * 24}, or raise gpus_per_user",
        )


def _check_places(config: Config) -> None:
    if not config.manage.partitions:
        raise ConfigError(
            "manage.partitions is empty: no job would be managed", "Name at least one partition"
        )
    state_dir, nudge_file = config.controller.state_dir, config.controller.nudge_file
    collect_dir = config.profiler.collect_dir
    for name, path, may_be_empty, what in (
        ("controller.state_dir", state_dir, False, "directory, from the root"),
        ("controller.nudge_file", nudge_file, True, "file, from the root, or nothing"),
        ("profiler.collect_dir", collect_dir, True, "directory, from the root, or leave it empty"),
    ):
        if not Path(path).is_absolute() and not (may_be_empty and not path):
            raise ConfigError(
                f"{name} = {path!r} is not an absolute path", f"Write the path of a {what}"
            )


_LISTEN = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z.-]+):([0-9]{1,5})", re.ASCII)


def host_and_port(listen: str) -> tuple[str, int]:
    """Split ``http.listen`` into host and port; raise ``ValueError`` if it is malformed."""
    found = _LISTEN.fullmatch(listen)
    if found is None or not 0 < int(found[2]) < 65536:
        raise ValueError(listen)
    return found[1].strip("[]"), int(found[2])


def _check_listen(listen: str) -> None:
    if not listen:
        return
    try:
        host_and_port(listen)
    except ValueError:
        raise ConfigError(
            f"http.listen = {listen!r} is not an address with a port",
            "Write one like 127.0.0.1:9817, or leave it empty",
        ) from None
