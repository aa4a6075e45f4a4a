"""The cost of searching a job's output for progress: the same lines with and without it."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from scripts.tools.bench.monitor import BUILD_COMMAND, GOALS
from scripts.tools.bench.record import count_option, record
from scripts.tools.document import interval_of_median, markdown
from slurm_tiresias.progress.output import FILE_BYTES

LINES = 100_000

KINDS = {
    "log": "a log line without a slash or a percent sign",
    "path": "a log line with a path",
    "step": "a log line with `step 120/1000`",
    "tqdm": "a bar of tqdm",
}


@click.command("output")
@count_option("pairs", 40, 1000, 5)
def output(pairs: int) -> None:
    """The cost of a print when the monitor searches it for progress."""
    with tempfile.TemporaryDirectory(prefix="st-bench-") as name:
        folder = Path(name)
        subprocess.run([*BUILD_COMMAND, f"BUILD={folder}", *GOALS], check=True)
        rows = [_row(kind, _costs(folder, kind, pairs)) for kind in KINDS]
    header = ("line", "without, ns", "with, ns", "cost, ns", "95 % interval of it")
    text = (
        f"{markdown(header, rows)}\n\n"
        f"Nanoseconds that one `write` of a line to a file takes, without the monitor and with it, "
        f"and the difference: medians of {pairs} pairs of runs of {LINES:,} lines, one right after "
        "the other and in changing order. The traffic of the job is not counted meanwhile."
    )
    record("Progress in what a job prints", text)


def _costs(folder: Path, kind: str, pairs: int) -> Sequence[tuple[float, float]]:
    """Nanoseconds per line without and with the monitor, for each pair."""
    _line_ns(folder, kind, watched=False)  # warm up
    costs = []
    for pair in range(pairs):
        order = (True, False) if pair % 2 else (False, True)
        taken = {watched: _line_ns(folder, kind, watched) for watched in order}
        costs.append((taken[False], taken[True]))
    return costs


def _line_ns(folder: Path, kind: str, watched: bool) -> float:
    command = [str(folder / "tests" / "printer"), str(LINES), kind]
    file = folder / "output"
    file.write_bytes(bytes(FILE_BYTES))
    library = {"LD_PRELOAD": str(folder / "libtiresias_monitor.so")} if watched else {}
    environment = {**os.environ, **library, "TIRESIAS_OUTPUT_FILE": str(file)}
    with (folder / "printed").open("wb") as printed:
        ended = subprocess.run(
            command, env=environment, stdout=printed, stderr=subprocess.PIPE, text=True, check=True
        )
    if any(file.read_bytes()) != (watched and kind in ("step", "tqdm")):
        raise SystemExit(f"bench: the monitor did not keep what it should of {kind}")
    return float(ended.stderr)


def _row(kind: str, costs: Sequence[tuple[float, float]]) -> Sequence[str]:
    differences = [with_it - without for without, with_it in costs]
    low, high = interval_of_median(differences)
    return (
        KINDS[kind],
        f"{statistics.median(without for without, _ in costs):.0f}",
        f"{statistics.median(with_it for _, with_it in costs):.0f}",
        f"{statistics.median(differences):.0f}",
        f"{low:.0f} to {high:.0f}",
    )
