"""``tiresias-slurm init``: write the files for this cluster to a folder, and list the next
steps."""

from __future__ import annotations

import grp
import pwd
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from slurm_tiresias.atomic_write import write_atomically
from slurm_tiresias.cli import init_files
from slurm_tiresias.cli.init_files import Choice, Step, compose, node_groups, step_lines
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
from slurm_tiresias.text import count, listed, printable

SCHEMA = 1
DEFAULT_FOLDER = "slurm-tiresias"
DEFAULT_SINCE = "now-90days"
FEWEST_JOBS = tuning.FEWEST_JOBS_A_PART * 2 * tuning.PARTS
"""With fewer jobs ``tune`` would report that they are too few, so they are not simulated."""

INSTALLED_PROGRAM = "/opt/slurm-tiresias/bin/tiresias-slurm"

_PLAIN_PATH = re.compile(r"/[A-Za-z0-9._/+-]*")
_DEFAULT_STAYS = "The thresholds stay at the default"


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
    chosen, out = _partitions(seen, partitions), Path(folder)
    if not _PLAIN_PATH.fullmatch(state_dir):
        # The path is inserted into a unit, a script and Lua, which all quote differently.
        raise UsageError(
            f"--state-dir {printable(state_dir)} is not a plain path",
            "Write an absolute path of letters, digits and . _ + -",
        )
    there = tuple(name for name in init_files.NAMES if (out / name).exists())
    if there and not force:
        raise UsageError(
            f"{printable(folder)} already has {listed(there)}",
            "Name another folder, or overwrite them with --force",
        )
    groups = node_groups(seen, chosen)
    gpu_s, because = (None, f"{_DEFAULT_STAYS}.") if no_history else _thresholds(since, groups)
    settings = {
        "manage": {"partitions": list(chosen)},
        "controller": {"state_dir": state_dir},
        "policy": {"thresholds_gpu_s": list(gpu_s)} if gpu_s else {},
    }
    config = parse(settings, "the command line")
    files, steps = compose(seen, Choice(config, because, _program(), *_slurm_user(seen)), folder)
    for name, text in files.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        mode = 0o755 if name == init_files.NUDGE else 0o644
        write_atomically(out / name, text.encode(), mode)
    told = {
        "schema": SCHEMA,
        "folder": str(out.absolute()),
        "files": sorted(files),
        "partitions": list(chosen),
        "nodes": [{"nodes": g.nodes, "gpus": g.gpus, "type": g.gpu_type} for g in groups],
        "thresholds_gpu_s": list(config.policy.thresholds_gpu_s),
        "thresholds_because": because,
        "steps": [{"title": step.title, "commands": list(step.commands)} for step in steps],
    }
    gpus = sum(group.nodes * group.gpus for group in groups)
    managed = ", ".join(map(printable, chosen))
    paragraphs = (
        f"Manages {managed} with {count(gpus, 'GPU')}. {because}",
        f"In {printable(folder)}: {', '.join(sorted(files))}.",
    )
    show_or_json(as_json, lambda: told, lambda screen: _report(paragraphs, steps, screen))


def _report(paragraphs: Sequence[str], steps: Sequence[Step], screen: Screen) -> Iterator[str]:
    for text in paragraphs:
        yield from screen.prose(text, indent="")
    yield ""
    for line in step_lines(steps):
        yield screen.style(line, "title") if line[:1].isdigit() else line


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


def _thresholds(since: str, groups: tuple[NodeGroup, ...]) -> tuple[tuple[float, ...] | None, str]:
    """Return what this cluster's own history recommends, as ``tune`` would, and the reason. None:
    keep the default, which also holds if the history cannot be read."""
    site = SimCluster(groups=groups)
    try:
        workload, _ = run.fitting(from_sacct(since), site)
        jobs = f"{count(len(workload.jobs), 'job')} since {since}"
        if len(workload.jobs) < FEWEST_JOBS:
            few = f"{jobs} say too little, {FEWEST_JOBS} are needed"
            return None, f"{_DEFAULT_STAYS}: {few}."
        config = unprotected()
        setup = run.Setup(
            site, config, Costs(site, True, None), Timing(config.controller.interval_s)
        )
        cells = [Cell(cuts) for cuts in tuning.candidates(workload)]
        with progress("settings", len(cells)) as advance:
            results = sweep.run_here(Task(workload, setup), cells, advance)
    except TiresiasError as error:
        return None, f"{_DEFAULT_STAYS}: {printable(error.what).rstrip('.')}."
    advice = tuning.advise(workload, results, "average")
    if advice.warnings:
        return None, f"{_DEFAULT_STAYS}: {'; '.join(advice.warnings)}."
    if advice.recommended is advice.default:
        return None, f"{_DEFAULT_STAYS}: {jobs} show none that are surely better."
    change = advice.recommended.second.value - 1.0
    return advice.recommended.cell.thresholds_gpu_s, (
        f"Chosen by {jobs}: with these the average JCT of their second half differs from the "
        f"default's by {change:+.1%}. `tiresias-slurm tune` shows the evidence."
    )
