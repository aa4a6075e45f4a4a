"""``tiresias-slurm init``: write the files for this cluster to a folder, and list the next
steps."""

from __future__ import annotations

import grp
import pwd
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from slurm_tiresias.atomic_write import write_atomically
from slurm_tiresias.cli import init_files
from slurm_tiresias.cli.init_files import Choice, NodeKind, Step, compose, node_kinds, step_lines
from slurm_tiresias.cli.options import PROGRAM, config_path, json_option, words
from slurm_tiresias.cli.progress import progress
from slurm_tiresias.cli.screen import Screen, show_or_json
from slurm_tiresias.cli.simulation_options import unprotected
from slurm_tiresias.config import parse
from slurm_tiresias.doctor.look import look
from slurm_tiresias.doctor.seen import Seen
from slurm_tiresias.errors import SlurmUnreachableError, TiresiasError, UsageError
from slurm_tiresias.simulator import run, sweep
from slurm_tiresias.simulator import tune as tuning
from slurm_tiresias.simulator.cluster_file import NodeGroup
from slurm_tiresias.simulator.engine import Timing
from slurm_tiresias.simulator.history import from_sacct
from slurm_tiresias.simulator.sim_cluster import Costs, SimCluster
from slurm_tiresias.simulator.sweep import Cell, Task
from slurm_tiresias.simulator.workload import Workload
from slurm_tiresias.text import count, listed, printable

SCHEMA = 1
DEFAULT_FOLDER = "slurm-tiresias"
DEFAULT_SINCE = "now-90days"
FEWEST_JOBS = tuning.FEWEST_JOBS_A_PART * 2 * tuning.PARTS
"""With fewer jobs ``tune`` would report that they are too few, so they are not simulated."""

INSTALLED_PROGRAM = "/opt/slurm-tiresias/bin/tiresias-slurm"

_PLAIN_PATH = re.compile(r"/[A-Za-z0-9._/+-]*")
_DEFAULT_STAYS = "The thresholds stay at the default"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The thresholds recommended by a history. ``gpu_s`` None: keep the default."""

    gpu_s: tuple[float, ...] | None
    because: str


@click.command()
@click.argument("folder", required=False, default=DEFAULT_FOLDER, metavar="[FOLDER]")
@click.option(
    "-p",
    "--partition",
    "partitions",
    metavar="NAMES",
    callback=words,
    help="Partitions to manage; by default all with GPUs.",
)
@click.option(
    "--since",
    metavar="DATE",
    default=DEFAULT_SINCE,
    show_default=True,
    help="Start of the history from which thresholds are chosen, as for sacct.",
)
@click.option("--no-history", is_flag=True, help="Leave the thresholds at the default.")
@click.option(
    "--state-dir",
    metavar="DIR",
    default=init_files.DEFAULT_STATE_DIR,
    show_default=True,
    help="The state directory of the controller.",
)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@json_option
def init(
    folder: str,
    partitions: tuple[str, ...],
    since: str,
    no_history: bool,
    state_dir: str,
    force: bool,
    as_json: bool,
) -> None:
    """Write a configuration for this cluster into FOLDER, and print how to install it.

    Writes a commented tiresias.toml in shadow mode, the missing lines of slurm.conf, the service,
    and the files that belong in Slurm's folders. Installs nothing, and changes nothing outside
    FOLDER (./slurm-tiresias by default).
    """
    seen = look(config_path())
    chosen = _partitions(seen, partitions)
    if not _PLAIN_PATH.fullmatch(state_dir):
        # The path is inserted into a unit, a script and Lua, which all quote differently.
        raise UsageError(
            f"--state-dir {printable(state_dir)} is not a plain path",
            "Write an absolute path of letters, digits and . _ + -",
        )
    kinds = node_kinds(seen, chosen)
    _check_free(Path(folder), force)
    found = Thresholds(None, f"{_DEFAULT_STAYS}.") if no_history else _thresholds(since, kinds)
    user, group = _slurm_user(seen)
    choice = Choice(chosen, state_dir, found.gpu_s, found.because, _program(), user, group)
    parse(
        {"manage": {"partitions": list(chosen)}, "controller": {"state_dir": state_dir}},
        "the command line",
    )
    files, steps = compose(seen, choice, folder)
    _write(Path(folder), files)
    show_or_json(
        as_json,
        lambda: _as_object(folder, files, steps, choice, kinds),
        lambda screen: _report(folder, files, steps, choice, kinds, screen),
    )


def _partitions(seen: Seen, requested: tuple[str, ...]) -> tuple[str, ...]:
    """Return the partitions to manage: the requested ones, or all with GPUs."""
    if seen.partitions is None or seen.nodes is None:
        why = seen.not_seen[0] if seen.not_seen else "slurmctld does not answer"
        raise SlurmUnreachableError(
            f"The partitions cannot be seen: {why}", "Run this where scontrol works"
        )
    there = {partition.name: partition for partition in seen.partitions}
    with_gpus = tuple(name for name, each in there.items() if seen.gpus_of(each))
    named = ", ".join(map(printable, with_gpus)) or "none"
    for name in requested:
        if name not in with_gpus:
            what = "has no GPUs" if name in there else "does not exist"
            raise UsageError(
                f"Partition {printable(name)} {what}", f"Partitions with GPUs: {named}"
            )
    if not with_gpus:
        raise UsageError(
            "No partition of this cluster has GPUs, so there is nothing to manage",
            "Give nodes Gres=gpu:NUMBER in slurm.conf; `tiresias-slurm doctor` says more",
        )
    return requested or with_gpus


def _check_free(folder: Path, force: bool) -> None:
    there = tuple(name for name in init_files.NAMES if (folder / name).exists())
    if there and not force:
        raise UsageError(
            f"{printable(str(folder))} already has {listed(there)}",
            "Name another folder, or overwrite them with --force",
        )


def _program() -> str:
    """Return the path of this program, for the service to start."""
    called = Path(sys.argv[0])
    if called.name == PROGRAM and called.exists():
        return str(called.absolute())
    return shutil.which(PROGRAM) or INSTALLED_PROGRAM


def _slurm_user(seen: Seen) -> tuple[str, str]:
    """Return SlurmUser and its group."""
    name = (seen.settings.text("SlurmUser") if seen.settings else "").partition("(")[0] or "root"
    try:
        return name, grp.getgrgid(pwd.getpwnam(name).pw_gid).gr_name
    except KeyError:
        return name, name


def _thresholds(since: str, kinds: Sequence[NodeKind]) -> Thresholds:
    """Return what this cluster's own history recommends, as ``tune`` would; if it cannot be read,
    keep the defaults."""
    site = SimCluster(groups=tuple(NodeGroup(k.nodes, k.gpus, k.gpu_type) for k in kinds))
    try:
        kept, _ = run.fitting(from_sacct(since), site)
        if len(kept.jobs) < FEWEST_JOBS:
            few = f"{count(len(kept.jobs), 'job')} since {since} say too little"
            return Thresholds(None, f"{_DEFAULT_STAYS}: {few}, {FEWEST_JOBS} are needed.")
        return _advised(kept, site, since)
    except TiresiasError as error:
        return Thresholds(None, f"{_DEFAULT_STAYS}: {printable(error.what).rstrip('.')}.")


def _advised(workload: Workload, site: SimCluster, since: str) -> Thresholds:
    config = unprotected()
    setup = run.Setup(site, config, Costs(site, True, None), Timing(config.controller.interval_s))
    cells = [Cell(cuts) for cuts in tuning.candidates(workload)]
    with progress("settings", len(cells)) as advance:
        results = sweep.run_here(Task(workload, setup), cells, advance)
    advice = tuning.advise(workload, results, "average")
    jobs = f"{count(len(workload.jobs), 'job')} since {since}"
    if advice.warnings:
        return Thresholds(None, f"{_DEFAULT_STAYS}: {'; '.join(advice.warnings)}.")
    if advice.recommended is advice.default:
        return Thresholds(None, f"{_DEFAULT_STAYS}: {jobs} show none that are surely better.")
    change = advice.recommended.second.value - 1.0
    because = (
        f"Chosen by {jobs}: with these the average JCT of their second half differs from the "
        f"default's by {change:+.1%}. `tiresias-slurm tune` shows the evidence."
    )
    return Thresholds(advice.recommended.cell.thresholds_gpu_s, because)


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = 0o755 if name in init_files.EXECUTABLE else 0o644
        write_atomically(path, text.encode(), mode)


def _as_object(
    folder: str,
    files: Mapping[str, str],
    steps: Sequence[Step],
    choice: Choice,
    kinds: Sequence[NodeKind],
) -> dict[str, Any]:
    """Return the list of written files for ``--json``. Fields are added, never changed."""
    return {
        "schema": SCHEMA,
        "folder": str(Path(folder).absolute()),
        "files": sorted(files),
        "partitions": list(choice.partitions),
        "nodes": [
            {"nodes": kind.nodes, "gpus": kind.gpus, "type": kind.gpu_type} for kind in kinds
        ],
        "thresholds_gpu_s": list(init_files.configured(choice).policy.thresholds_gpu_s),
        "thresholds_because": choice.because,
        "steps": [{"title": step.title, "commands": list(step.commands)} for step in steps],
    }


def _report(
    folder: str,
    files: Mapping[str, str],
    steps: Sequence[Step],
    choice: Choice,
    kinds: Sequence[NodeKind],
    screen: Screen,
) -> list[str]:
    gpus = sum(kind.nodes * kind.gpus for kind in kinds)
    managed = ", ".join(map(printable, choice.partitions))
    summary = f"Manages {managed} with {count(gpus, 'GPU')}. {choice.because}"
    names = f"In {printable(folder)}: {', '.join(sorted(files))}."
    lines = [*screen.prose(summary, indent=""), *screen.prose(names, indent=""), ""]
    for line in step_lines(steps):
        lines.append(screen.style(line, "title") if line[:1].isdigit() else line)
    return lines
