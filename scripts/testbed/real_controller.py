"""A real controller for tests: the actual command, in a separate process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from scripts import ROOT
from scripts.testbed import constants
from scripts.testbed.patience import PATIENCE_S
from scripts.testbed.real_cluster import RealCluster
from scripts.testbed.slurmctld import memory_mb
from slurm_tiresias.errors import NotRunningError
from slurm_tiresias.status import ask, published
from slurm_tiresias.status.published import PublishedJob, PublishedState
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.records import RunRecord
from slurm_tiresias.store.terms import newest_ledger

COMMAND = (sys.executable, "-m", "slurm_tiresias.cli")
CONSTANTS = "constants"
"""A table of settings for what is a constant of the program (``testbed/constants.py``)."""

DRIVER_VARIABLE = "TIRESIAS_TEST_DRIVER"
"""Selects the driver of all controllers; the tests run with each one (scripts/dev matrix)."""

BY_COMMANDS = os.environ.get(DRIVER_VARIABLE, "commands") == "commands"

only_by_commands = pytest.mark.skipif(
    not BY_COMMANDS,
    reason="what Slurm's commands are given, or go wrong in, is what this is about",
)

QUICK: Mapping[str, Mapping[str, object]] = {
    "policy": {"thresholds_gpu_s": [8], "estimates": ["reports"]},
    "preemption": {"min_run_s": 1},
    "controller": {"mode": "enforce", "interval_s": 0.5},
}
"""Two tiers, the second after two seconds on four GPUs; two cycles per second. How long earlier
jobs ran does not count: they are those of other tests."""


class LoggedCycle(NamedTuple):
    """A cycle, and the durations of its parts, as a controller with ``-v`` logs them."""

    ended_s: float
    """By the clock of this machine, in seconds since the epoch."""
    read_s: float
    decided_s: float
    writes: int
    wrote_s: float

    @property
    def began_s(self) -> float:
        return self.ended_s - self.read_s - self.decided_s - self.wrote_s


_CYCLE = re.compile(
    r"(\S+ \S+) DEBUG: cycle \d+: read in (\S+) s, decided in (\S+) s, (\d+) writes in (\S+) s"
)


def logged_cycles(log: str) -> Sequence[LoggedCycle]:
    """Return every cycle in a controller's log."""
    return [
        LoggedCycle(
            datetime.strptime(at, "%Y-%m-%d %H:%M:%S.%f").timestamp(),
            *(float(read_s), float(decided_s), int(writes), float(wrote_s)),
        )
        for at, read_s, decided_s, writes, wrote_s in _CYCLE.findall(log)
    ]


@dataclass
class RealController:
    """``tiresias-slurm controller`` on a real cluster."""

    cluster: RealCluster
    folder: Path
    settings: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    process: subprocess.Popen[str] | None = None
    shared_dir: Path | None = None
    """The state directory, if it is shared with another controller."""
    extra_environment: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Mapping[str, object]] = field(default_factory=lambda: QUICK)
    log_file: Path | None = None
    """Where it logs, in a session of its own; None: into a pipe, which ``stop`` reads."""

    @property
    def config_file(self) -> Path:
        return self.folder / "tiresias.toml"

    @property
    def state_dir(self) -> Path:
        return self.shared_dir or self.folder / "state"

    def start(self, *options: str, program: Sequence[str] = constants.COMMAND) -> RealController:
        """Start the controller and wait for its first cycle."""
        self.write_config()
        self.process = self.spawn(*options, program=program)
        self.cluster.wait_until(self.cycles_on, "the controller's first cycle")
        return self

    def spawn(
        self, *options: str, program: Sequence[str] = constants.COMMAND
    ) -> subprocess.Popen[str]:
        command = [*program, "controller", "--config", str(self.config_file), *options]
        log = self.log_file.open("a") if self.log_file else subprocess.PIPE
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env=self.environment,
            stderr=log,
            stdout=log,
            text=True,
            start_new_session=self.log_file is not None,
        )

    @property
    def environment(self) -> dict[str, str]:
        replaced = constants.in_environment(self._merged().get(CONSTANTS, {}))
        return {**os.environ, **self.cluster.env, **replaced, **self.extra_environment}

    def write_config(self) -> None:
        merged = self._merged()
        merged.pop(CONSTANTS, None)
        merged["controller"]["state_dir"] = str(self.state_dir)
        merged["controller"].setdefault("nudge_file", str(self.folder / "nudge"))
        if driver := os.environ.get(DRIVER_VARIABLE):
            merged["slurm"] = {"driver": driver}
        lines = []
        for table, values in merged.items():
            # Numbers, texts and lists look alike in JSON and in TOML.
            lines += [f"[{table}]", *(f"{name} = {json.dumps(v)}" for name, v in values.items())]
        self.config_file.write_text("\n".join(lines))

    def _merged(self) -> dict[str, dict[str, object]]:
        return {
            table: {**self.defaults.get(table, {}), **self.settings.get(table, {})}
            for table in {**self.defaults, **self.settings}
        }

    def stop(self) -> str:
        """Stop the controller cleanly; return its log."""
        return self._end(signal.SIGTERM)

    def kill(self) -> str:
        """Kill the controller with SIGKILL; return its log."""
        return self._end(signal.SIGKILL)

    def end(self) -> None:
        """Kill the controller if it still runs."""
        if self.process is not None:
            self.kill()

    def _end(self, with_signal: int) -> str:
        assert self.process is not None
        self.process.send_signal(with_signal)
        _, log = self.process.communicate(timeout=PATIENCE_S)
        self.process = None
        return log

    def cycles_on(self) -> bool:
        """Whether it has published a cycle; raise ``AssertionError`` if it has ended."""
        assert self.process is not None
        if self.process.poll() is not None:
            log = self.log_file.read_text() if self.log_file else self.process.communicate()[1]
            raise AssertionError(f"the controller ended: {log}")
        return self.has_cycled(self.process)

    def has_cycled(self, process: subprocess.Popen[str]) -> bool:
        """Whether this process has published a cycle."""
        try:
            state = self.state()
        except NotRunningError:
            return False
        return state.pid == process.pid and state.cycle > 0

    def memory_mb(self, which: str) -> float:
        """Return the memory of its process: now (VmRSS), or the most so far (VmHWM)."""
        assert self.process is not None
        return memory_mb(self.process.pid, which)

    # What the controller reports

    def state(self) -> PublishedState:
        return published.read(self.state_dir)

    def job(self, key: str) -> PublishedJob | None:
        """Return the job as last published, or None."""
        return next((job for job in self.state().jobs if job.job_id == key), None)

    def faults(self) -> list[str]:
        """Return what went wrong so far: after its end or a failed cycle, Slurm schedules alone."""
        assert self.process is not None
        ended = ["the controller has ended"] if self.process.poll() is not None else []
        failed = self.state().failed_cycles.items()
        return [*ended, *(f"{count} of the controller's cycles: {why}" for why, count in failed)]

    def events(self, kind: str) -> list[tuple[str, str]]:
        """Return the job and the other job of each event of this kind."""
        return [(e.job_id, e.other) for e in self.state().events if e.kind == kind]

    def runs(self, key: str) -> list[RunRecord]:
        with closing(Ledger(newest_ledger(self.state_dir))) as ledger:
            return ledger.runs.of(key)

    def cycles(self, count: int) -> None:
        """Wait for ``count`` more complete cycles."""
        first = self.state().cycle
        self.wait_until(lambda: self.state().cycle > first + count, f"{count} more cycles")

    def command(self, name: str) -> Mapping[str, Any]:
        return ask.command(self.state_dir, name)

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run ``tiresias-slurm`` with this controller's configuration."""
        return subprocess.run(
            [*COMMAND, "--config", str(self.config_file), *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )

    # Waiting

    def wait_until(
        self, condition: Callable[[], object], what: str, timeout_s: float = PATIENCE_S
    ) -> None:
        self.cluster.wait_until(condition, what, timeout_s)

    def wait_for_tier(self, key: str, tier: int) -> None:
        self.wait_until(
            lambda: (job := self.job(key)) is not None and job.tier == tier, f"{key} in tier {tier}"
        )

    def wait_for_reason(self, key: str, reason: str) -> None:
        self.wait_until(
            lambda: (job := self.job(key)) is not None and job.reason == reason,
            f"{key} because {reason}",
        )


@contextmanager
def controller_of_one_test(
    cluster: RealCluster, folder: Path, settings: Mapping[str, Mapping[str, object]]
) -> Iterator[RealController]:
    """Run a controller for one test; afterwards empty the cluster, which other tests share."""
    controller = RealController(cluster, folder, settings).start()
    yield controller
    if controller.process is not None:
        controller.stop()
    cluster.run("scancel", "--me")
    cluster.wait_until(lambda: not cluster.run("squeue", "-h").strip(), "an empty queue")
