"""The cost of the SPANK plugin at job launch: ``srun true`` with and without it, alternating."""

from __future__ import annotations

import random
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from scripts import ROOT
from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from scripts.tools.bench.record import count_option, record
from scripts.tools.document import interval_of_median, markdown

SEED = 1
WARM_UP = 3
WITHOUT = "without the plugin"
SET_UPS: Mapping[str, str | None] = {
    WITHOUT: None,
    "profile=off": "profile=off",
    "profile=auto, counted": "profile=auto",
}
"""Arguments in plugstack.conf besides the plugin's folders; steps and prologs read it each time."""


@click.command("launch")
@count_option("rounds", 200, 10000, 5)
def launch(rounds: int) -> None:
    """The cost of the SPANK plugin when a job is launched."""
    with short_folder() as folder:
        make = ("make", "--silent", "-C", str(ROOT / "spank"), f"BUILD={folder}/build")
        subprocess.run(make, check=True)
        (folder / "collect").mkdir()
        (folder / "plugstack.conf").write_text(f"optional {folder}/build/spank_tiresias.so\n")
        options = ("--nodes=1", "--no-accounting", f"--conf-file={folder}/plugstack.conf")
        with started_cluster(folder, *options) as cluster:
            seconds = _seconds(cluster, folder, rounds)
    header = ("plugstack.conf", "median, ms", "95th", "more than without, ms", "95 % interval")
    rows = [_row(name, seconds[name], seconds[WITHOUT]) for name in SET_UPS]
    text = (
        "From the call of `srun --gpus=1 true` to its end, with prolog and epilog, on an idle real "
        f"cluster: {rounds} rounds of one job under each set-up, in changing order. `more than "
        "without` is the median of the differences inside a round."
    )
    record("The launch of a job", markdown(header, rows), text)


def _seconds(cluster: RealCluster, folder: Path, rounds: int) -> Mapping[str, list[float]]:
    draw = random.Random(SEED)
    seconds: dict[str, list[float]] = {name: [] for name in SET_UPS}
    for number in range(-WARM_UP, rounds):
        for name in draw.sample(list(SET_UPS), len(SET_UPS)):
            _set_up(cluster, folder, SET_UPS[name])
            began_s = time.perf_counter()
            cluster.run("srun", "--gpus=1", "--mem=10", "true")
            if number >= 0:
                seconds[name].append(time.perf_counter() - began_s)
        if number > 0 and number % 20 == 19:
            click.echo(f"{number + 1} of {rounds} rounds", err=True)
    return seconds


def _set_up(cluster: RealCluster, folder: Path, arguments: str | None) -> None:
    line = (
        ""
        if arguments is None
        else f"optional {folder}/build/spank_tiresias.so run={folder}/run "
        f"collect={folder}/collect {arguments}\n"
    )
    (cluster.folder / "etc" / "plugstack.conf").write_text(line)


def _row(name: str, seconds: Sequence[float], without: Sequence[float]) -> Sequence[str]:
    more = [one - other for one, other in zip(seconds, without, strict=True)]
    low, high = interval_of_median(more)
    of_others = (
        f"{1000 * statistics.median(more):+.1f}",
        f"{1000 * low:+.1f} to {1000 * high:+.1f}",
    )
    return (
        name,
        f"{1000 * statistics.median(seconds):.0f}",
        f"{1000 * statistics.quantiles(seconds, n=20)[18]:.0f}",
        *(("", "") if name == WITHOUT else of_others),
    )
