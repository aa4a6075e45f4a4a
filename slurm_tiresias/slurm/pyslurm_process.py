"""Start ``pyslurm_worker.py``, send it requests, and kill it if it takes too long."""

from __future__ import annotations

import math
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from slurm_tiresias import json_codec
from slurm_tiresias.errors import BindingError, LeaseLostError, SlurmUnreachableError, TiresiasError
from slurm_tiresias.slurm import process
from slurm_tiresias.slurm.protocol import Commands
from slurm_tiresias.slurm.release import Version, series, version_in

PATIENCE_S = 20.0
"""For the import and for reading slurm.conf, which may have to be fetched from slurmctld."""

MOST_WORDS = 300
"""How many characters of the worker's last output are shown."""

_READ_AT_ONCE = 1 << 20
_COMMAND = (sys.executable, "-P", "-m", "slurm_tiresias.slurm.pyslurm_worker")
_PACKAGE_IN = str(Path(__file__).resolve().parents[2])

Series = tuple[int, int]
"""Year and month of a release, within which the protocol is the same."""


class PyslurmProcess:
    """A running worker process that has imported pyslurm."""

    def __init__(self, commands: Commands) -> None:
        """Raises ``BindingError`` if pyslurm is missing or built for another release of Slurm."""
        environment = process.environment(commands.environment)
        self.slurm = _installed(commands, environment)
        self._complaints = os.fdopen(os.memfd_create("stderr"), "w+b")
        paths = [_PACKAGE_IN, *filter(None, [environment.get("PYTHONPATH")])]
        self._child = subprocess.Popen(
            _COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            env={**environment, "PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,
        )
        try:
            says = self._imported()
            self.version: str = says["pyslurm"]
            built_for = version_in(says["built_for"])[:2]
            if built_for != self.slurm:
                raise BindingError(
                    f"pyslurm {self.version} was built for Slurm {series(built_for)}, and this "
                    f"host has {series(self.slurm)}",
                    _REMEDY,
                )
        except BaseException:
            self.end()
            raise

    @property
    def pid(self) -> int:
        """The process id of the worker."""
        return self._child.pid

    def ask(
        self,
        request: Mapping[str, Any],
        timeout_s: float,
        *,
        until_s: float = math.inf,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """Return the worker's answer. After any exception the worker must be ended.

        The kernel kills a worker that still writes at ``until_s`` (in ``CLOCK_BOOTTIME``); if that
        time has passed, nothing is sent and ``LeaseLostError`` is raised. ``meanwhile`` is called
        repeatedly while waiting.
        """
        if until_s <= time.clock_gettime(time.CLOCK_BOOTTIME):
            raise LeaseLostError(
                "nothing was written through pyslurm: this controller's lease is over",
                "nothing needs to be done; the other controller acts",
            )
        bound = None if until_s == math.inf else until_s
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(json_codec.dumps({**request, "until_s": bound}) + b"\n")
            self._child.stdin.flush()
        except OSError:
            raise self._ended() from None
        answer = self._answer(timeout_s, meanwhile)
        if "error" in answer:
            raise process.complaint("pyslurm", answer["error"])
        return answer

    def end(self) -> None:
        """Kill the worker."""
        self._child.kill()
        self._child.wait()
        for pipe in filter(None, (self._child.stdin, self._child.stdout, self._complaints)):
            # Closing flushes buffered input, which fails once the worker is gone.
            with suppress(OSError):
                pipe.close()

    def _imported(self) -> dict[str, Any]:
        try:
            return self._answer(PATIENCE_S, lambda: None)
        except SlurmUnreachableError:
            raise BindingError(
                f"pyslurm cannot be used: it was not imported within {PATIENCE_S:g} s", _REMEDY
            ) from None

    def _answer(self, timeout_s: float, meanwhile: Callable[[], None]) -> dict[str, Any]:
        give_up_s = time.monotonic() + timeout_s
        pieces: list[bytes] = []
        assert self._child.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._child.stdout, selectors.EVENT_READ)
            while not pieces or not pieces[-1].endswith(b"\n"):
                left_s = give_up_s - time.monotonic()
                if left_s <= 0:
                    raise SlurmUnreachableError(
                        f"pyslurm gave no answer within {timeout_s:g} s",
                        "check whether slurmctld is up and not overloaded (scontrol ping, sdiag)",
                    )
                if not selector.select(min(left_s, process.MEANWHILE_EVERY_S)):
                    meanwhile()
                    continue
                piece = os.read(self._child.stdout.fileno(), _READ_AT_ONCE)
                if not piece:
                    raise self._ended()
                pieces.append(piece)
        answer: dict[str, Any] = json_codec.loads(b"".join(pieces))
        return answer

    def _ended(self) -> TiresiasError:
        """Return the error for a worker that has ended by itself."""
        status = self._child.wait()
        if status == -signal.SIGALRM:
            return SlurmUnreachableError(
                "pyslurm did not end before the lease of this controller had to be renewed",
                "check whether slurmctld is overloaded (sdiag)",
            )
        self._complaints.seek(0)
        return _cannot_be_used(self._complaints.read().decode(errors="replace"), status)


def _cannot_be_used(said: str, status: int) -> BindingError:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    words = lines[-1][:MOST_WORDS] if lines else ""
    if "No module named 'pyslurm'" in words:
        return BindingError("pyslurm is not installed", _REMEDY)
    if status < 0:
        how = f"it was ended by signal {signal.Signals(-status).name}"
        words = f"{how}, after it said: {words}" if words else how
    return BindingError(f"pyslurm cannot be used: {words or f'it ended with {status}'}", _REMEDY)


def check_fits(worker: PyslurmProcess, slurmctld: Version) -> None:
    """Raise ``BindingError`` if slurmctld's release differs from that of pyslurm's library."""
    if worker.slurm != slurmctld[:2]:
        raise BindingError(
            f"pyslurm uses the protocol of Slurm {series(worker.slurm)}, and slurmctld is of "
            f"{series(slurmctld[:2])}",
            _REMEDY,
        )


def _installed(commands: Commands, environment: Mapping[str, str]) -> Series:
    """Return the release of Slurm's commands, and thus of its library, on this host."""
    said = process.run(
        [commands.scontrol, "--version"],
        stdin="",
        timeout_s=commands.timeout_s,
        environment=environment,
    )
    return version_in(said.stdout)[:2]


_REMEDY = (
    'build it for this Slurm (scripts/pyslurm), or set driver = "commands" in the table [slurm]'
)
