"""A compute node to sample: the driver is fake, the processes and the sampler are real."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from scripts.testbed.patience import PATIENCE_S, wait_until
from slurm_tiresias.profiler.gpu_runs import parse

UUID = "GPU-11111111-2222-3333-4444-555555555555"
COMMAND = (sys.executable, "-m", "slurm_tiresias.cli", "profile", "sample")
GIB = 1 << 30
ME = os.geteuid()
ANN, BOB = (12345, 12346) if ME == 0 else (ME, ME)

SQUASHED = frozenset({"chown", "dac_override", "dac_read_search", "fowner"})
"""The capabilities that root lacks on a file server with root_squash, where any other user has more
rights."""


def with_rights(bounding_set: str) -> tuple[str, ...]:
    """A command prefix: run as root with these capabilities, if it can still read the checkout."""
    prefix = ("setpriv", f"--bounding-set={bounding_set}", f"--inh-caps={bounding_set}")
    if subprocess.run([*prefix, "test", "-r", __file__], check=False).returncode != 0:
        pytest.skip("root without its rights cannot read the checkout")
    return prefix


class Node:
    """A compute node: the plugin's folders, a fake driver, jobs, and optionally a sampler."""

    def __init__(self, folder: Path, driver: str) -> None:
        self.run, self.collect, self.gpu = folder / "run", folder / "collect", folder / "gpu"
        self.log = folder / "log"
        for made in (self.run, self.collect, self.gpu):
            made.mkdir(mode=0o755, parents=True, exist_ok=True)
        self.driver = driver
        self.sampler: subprocess.Popen[str] | None = None
        self._processes: list[subprocess.Popen[bytes]] = []

    # Jobs

    def prolog(self, run_id: str, uid: int = ANN) -> None:
        file = self.run / f"{run_id}.traffic"
        file.touch(mode=0o600)
        os.chown(file, uid, -1)

    def samples(self, run_id: str = "7.0.n1") -> None:
        """A profiled job has one process, which computes, and the sampler has seen it."""
        self.prolog(run_id)
        self.computes(self.process(SLURM_JOB_ID="7"))
        self.begins()
        self.when_sampled()

    def epilog(self, run_id: str) -> None:
        (self.run / f"{run_id}.traffic").unlink()

    def process(self, uid: int = ANN, **environment: str) -> int:
        """A process that lives until the end of the test."""
        user = uid if ME == 0 else None
        process = subprocess.Popen(["/bin/sleep", "600"], env=environment, user=user)
        self._processes.append(process)
        return process.pid

    # The GPU

    def says(self, name: str, text: object) -> None:
        """Write atomically, since the driver is queried at any time."""
        draft = self.gpu / f".{name}"
        draft.write_text(str(text))
        draft.rename(self.gpu / name)

    def computes(self, *pids: int) -> None:
        self.says("pids", "\n".join(map(str, pids)))

    def when_sampled(self) -> None:
        """Wait for one complete sample of the GPU from now on."""
        self.says("asked", "")
        wait_until(lambda: re.search("i[^i]*s[^i]*i", self.asked) is not None)

    @property
    def asked(self) -> str:
        return (self.gpu / "asked").read_text()

    # The sampler

    def starts(
        self, *options: str, driver: str | None = None, wrapper: Sequence[str] = ()
    ) -> subprocess.Popen[str]:
        """Start the sampler, optionally as the arguments of another command."""
        kept = {k: v for k, v in os.environ.items() if k != "JOURNAL_STREAM"}
        found = {"LD_LIBRARY_PATH": driver or self.driver, "FAKE_NVML": str(self.gpu)}
        folders = ("--run", str(self.run), "--collect", str(self.collect))
        with self.log.open("w") as log:
            self.sampler = subprocess.Popen(
                [*wrapper, *COMMAND, *folders, "--every", "0.1", *options],
                env={**kept, **found},
                stderr=log,
                text=True,
            )
        return self.sampler

    def begins(self, *options: str, driver: str | None = None, wrapper: Sequence[str] = ()) -> None:
        self.starts(*options, driver=driver, wrapper=wrapper)
        wait_until(lambda: "handles the jobs" in self.logged)

    def ends(self) -> int:
        assert self.sampler is not None
        self.sampler.terminate()
        return self.sampler.wait(timeout=PATIENCE_S)

    @property
    def logged(self) -> str:
        return self.log.read_text()

    def written(self, run_id: str) -> dict[str, Any]:
        """The content of a file about a run that used one GPU."""
        file = self.collect / f"{run_id}.gpus"
        wait_until(file.exists)
        [gpu] = json.loads(file.read_bytes())["gpus"]
        parse(file.read_bytes())
        return dict(gpu)

    def clear_away(self) -> None:
        everything: list[subprocess.Popen[Any]] = [*self._processes]
        if self.sampler is not None:
            everything.append(self.sampler)
        for process in everything:
            process.kill()
            process.wait(timeout=PATIENCE_S)


def build_driver(folder: Path) -> str:
    """Build a library into the folder that answers like NVML on a machine with a GPU."""
    pytest.importorskip("pynvml")
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    library = folder / "libnvidia-ml.so.1"
    source = Path(__file__).with_name("fake_nvml.c")
    options = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-Wno-stringop-truncation"]
    subprocess.run(["cc", *options, "-o", str(library), str(source)], check=True)
    return str(folder)
