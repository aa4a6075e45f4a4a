"""Run programs with the traffic monitor preloaded, and read what it recorded."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from scripts.testbed.patience import PATIENCE_S
from slurm_tiresias.profiler.traffic import FILE_BYTES, Section, parse

SPANK = Path(__file__).parents[2] / "spank"

"""The time limit of a program, on a slow machine and under valgrind."""


def make(folder: Path, *goals: str) -> subprocess.CompletedProcess[str]:
    """Build or test the monitor alone; the results are put into ``folder``."""
    command = ("make", "-C", str(SPANK), "-f", "monitor/monitor.mk", f"BUILD={folder}", *goals)
    return subprocess.run(command, capture_output=True, text=True, check=False)


@dataclass(frozen=True, slots=True)
class Monitor:
    """The built libraries, and one traffic file for all programs that run with them."""

    build: Path
    file: Path
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def library(self) -> Path:
        return self.build / "libtiresias_monitor.so"

    @property
    def nccl_plugin(self) -> Path:
        return self.build / "libnccl-profiler-tiresias.so"

    def program(self, name: str) -> str:
        """The path of one of the test programs."""
        return str(self.build / "tests" / name)

    def empty_file(self) -> None:
        """What the plugin creates at the start of a run: a file of zeros."""
        with self.file.open("wb") as file:
            file.truncate(FILE_BYTES)
        self.file.chmod(0o600)

    def environment(self) -> dict[str, str]:
        """The variables that the plugin adds to the environment of each task."""
        named = {"LD_PRELOAD": str(self.library), "TIRESIAS_TRAFFIC_FILE": str(self.file)}
        return {**os.environ, **named, **self.settings}

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start a program with the monitor preloaded."""
        return subprocess.Popen(
            command,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a program with the monitor preloaded, to its end."""
        return subprocess.run(
            command,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def python(self, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a Python script with the monitor preloaded."""
        return self.run(sys.executable, "-c", script, *arguments)

    def messages(self) -> Section:
        """Return the recorded messages on sockets and by verbs; the file must be valid."""
        return parse(self.file.read_bytes()).messages

    def collectives(self) -> Section:
        """Return the recorded buffers handed to NCCL; the file must be valid."""
        return parse(self.file.read_bytes()).collectives


def announced(output: str) -> dict[int, int]:
    """Parse a test program's own counts: ``BYTES MESSAGES`` per line, summed by size."""
    counts: dict[int, int] = {}
    for line in output.splitlines():
        size, messages = map(int, line.split())
        counts[size] = counts.get(size, 0) + messages
    return counts
