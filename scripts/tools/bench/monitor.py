"""The cost of the traffic monitor: the same stream with and without it, alternating."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from scripts import ROOT
from scripts.tools.bench.record import count_option, record
from scripts.tools.document import interval_of_median, markdown
from slurm_tiresias.profiler.traffic import FILE_BYTES, parse

BUILD_COMMAND = ("make", "--silent", "-C", str(ROOT / "spank"), "-f", "monitor/monitor.mk")
GOALS = ("monitor", "monitor-tests")
QUARTILES = 4


@dataclass(frozen=True, slots=True)
class Stream:
    """Messages of one size, and the largest loss of throughput allowed for counting them."""

    message_bytes: int
    messages: int
    limit: float


STREAMS = (Stream(1_000_000, 400, 0.01), Stream(1_000, 150_000, 0.05))


@click.command("monitor")
@count_option("pairs", 400, 1000, 5)
def monitor(pairs: int) -> None:
    """How much throughput of a connection the traffic monitor costs."""
    with tempfile.TemporaryDirectory(prefix="st-bench-") as name:
        folder = Path(name)
        subprocess.run([*BUILD_COMMAND, f"BUILD={folder}", *GOALS], check=True)
        rows = [_row(stream, _losses(folder, stream, pairs)) for stream in STREAMS]
    header = ("messages", "median loss", "quartiles", "extremes", "95 % interval of it", "allowed")
    text = (
        f"{markdown(header, rows)}\n\n"
        f"Throughput lost by a stream over a loopback connection when the traffic monitor is "
        f"preloaded into the sender and the receiver, in {pairs} pairs of runs, one right after "
        "the other and in changing order, with one core for each end where there are two; the "
        "interval is that of the median, from the order of the pairs by their loss. Below zero, "
        "the run with the monitor was the faster one."
    )
    record("The traffic monitor", text)


def _losses(folder: Path, stream: Stream, pairs: int) -> Sequence[float]:
    """Return the share of the throughput lost to the monitor, for each pair."""
    _seconds(folder, stream, watched=False)  # warm up
    losses = []
    for pair in range(pairs):
        order = (True, False) if pair % 2 else (False, True)
        seconds = {watched: _seconds(folder, stream, watched) for watched in order}
        losses.append(1 - seconds[False] / seconds[True])
    return losses


def _seconds(folder: Path, stream: Stream, watched: bool) -> float:
    program = str(folder / "tests" / "stream")
    command = [program, str(stream.messages), str(stream.message_bytes)]
    file = folder / "traffic"
    file.write_bytes(bytes(FILE_BYTES))
    library = {"LD_PRELOAD": str(folder / "libtiresias_monitor.so")} if watched else {}
    environment = {**os.environ, **library, "TIRESIAS_TRAFFIC_FILE": str(file)}
    ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    counted = parse(file.read_bytes()).messages.listed
    if counted != ({stream.message_bytes: stream.messages} if watched else {}):
        sys.exit(f"bench: the monitor counted {counted}")
    return float(ended.stdout)


def _row(stream: Stream, losses: Sequence[float]) -> Sequence[str]:
    low, _, high = statistics.quantiles(losses, n=QUARTILES)
    return (
        f"{stream.messages:,} of {stream.message_bytes:,} bytes",
        f"{statistics.median(losses):.2%}",
        f"{low:.2%} to {high:.2%}",
        f"{min(losses):.2%} to {max(losses):.2%}",
        "{:.2%} to {:.2%}".format(*interval_of_median(losses)),
        f"{stream.limit:.0%}",
    )
