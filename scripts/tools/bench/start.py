"""How long each ``tiresias-slurm`` command takes from call to exit."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from scripts.tools.document import markdown, write_section
from slurm_tiresias.model import JobAccount
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.records import RunRecord

PYTHON = "Python alone"
PROGRAM = Path(sys.prefix) / "bin" / "tiresias-slurm"
HELP = (
    *("config", "controller", "doctor", "explain", "history", "init", "ledger", "metrics"),
    *("nudge", "profile", "report", "shadow", "simulate", "status", "tune"),
)
CALLS: Mapping[str, Sequence[str]] = {
    PYTHON: (sys.executable, "-c", "pass"),
    "--version": (str(PROGRAM), "--version"),
    "--help": (str(PROGRAM), "--help"),
    **{f"{name} --help": (str(PROGRAM), name, "--help") for name in HELP},
    "history 1": (str(PROGRAM), "history", "1"),
    "report, no job": (str(PROGRAM), "report", "-S", "2020-01-01", "-E", "2020-01-02"),
    "report, one job": (str(PROGRAM), "report"),
}


def measure(rounds: int) -> None:
    """Call the commands in turn, ``rounds`` times; other load on the machine can only add time."""
    with tempfile.TemporaryDirectory(prefix="st-start-", dir="/tmp") as name:
        environment = _prepared(Path(name))
        found: dict[str, list[tuple[float, float]]] = {call: [] for call in CALLS}
        for number in range(rounds):
            for call, words in CALLS.items():
                found[call].append(_seconds(words, environment))
            print(f"round {number + 1} of {rounds}", flush=True)
    rows = []
    for call, took in found.items():
        least_ms = (f"{min(seconds) * 1000:.0f}" for seconds in zip(*took, strict=True))
        rows.append([call if call == PYTHON else f"`{call}`", *least_ms])
    write_section(
        "The start of a command",
        f"scripts/dev bench start --rounds {rounds}",
        f"{markdown(('command', 'ms', 'CPU, ms'), rows)}\n\nFrom the call of `tiresias-slurm` to "
        f"its end: the shortest of {rounds} calls, made in turn, without a controller and without "
        "Slurm's accounting. A report that has jobs to tell of loads pandas.",
    )


def _prepared(folder: Path) -> Mapping[str, str]:
    """Create a configuration, and a ledger with one job that ran for an hour."""
    config = folder / "tiresias.toml"
    config.write_text(f'[controller]\nstate_dir = "{folder}"\n[slurm]\ndriver = "commands"\n')
    start_s, end_s = time.time() - 7200.0, time.time() - 3600.0
    job = JobAccount(
        *("1", 0, start_s, start_s, start_s, 1),
        first_started_s=start_s,
        ended_s=end_s,
        user="alice",
    )
    run = RunRecord("1", start_s, end_s, elapsed_s=3600.0, gpus=1, confirmed=True)
    with closing(Ledger(folder / "ledger.sqlite")) as ledger, ledger.transaction():
        ledger.jobs.put([job])
        ledger.runs.put([run])
    return {**os.environ, "TIRESIAS_CONFIG": str(config)}


def _seconds(words: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float]:
    """Return wall-clock seconds and CPU seconds."""
    before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(words, env=environment, capture_output=True, check=False)
    took_s, after = time.perf_counter() - began_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took_s, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
