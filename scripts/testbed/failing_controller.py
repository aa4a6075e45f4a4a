"""A controller with injected faults.

    python -m scripts.testbed.failing_controller NAME:MOMENT:NTH... -- ARGUMENTS

It runs ``tiresias-slurm ARGUMENTS``. When it passes the point NAME for the NTH time, it kills
itself there with SIGKILL (``before``, ``inside``, ``after``).
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn, cast

from scripts.testbed import kill_points
from scripts.testbed.constants import replace_from_environment
from scripts.testbed.kill_points import KillPoint
from slurm_tiresias.cli.main import main
from slurm_tiresias.controller import run
from slurm_tiresias.controller.driver import driver as chosen_driver
from slurm_tiresias.settings import Config
from slurm_tiresias.slurm.protocol import (
    Lease,
    Slurm,
    Write,
    WriteFailure,
)
from slurm_tiresias.slurm.tally import Tally
from slurm_tiresias.store.ledger import Ledger


class Faults:
    """The faults to inject: points, and at which of their passings."""

    def __init__(self, wanted: Iterable[tuple[KillPoint, int]]) -> None:
        self._wanted = list(wanted)
        self._passed: Counter[KillPoint] = Counter()

    def due(self, names: Collection[str]) -> str:
        """Count a passing of these points; return the moment of a fault that is due, or ""."""
        here = [(point, nth) for point, nth in self._wanted if point.name in names]
        self._passed.update(point for point, _ in here)
        return next((point.moment for point, nth in here if self._passed[point] == nth), "")


class FaultySlurm:
    """A driver with faults in its writes; all else is the driver's."""

    def __init__(self, slurm: Slurm, faults: Faults) -> None:
        self._slurm = slurm
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._slurm, name)

    def write(self, writes: Sequence[Write]) -> Sequence[WriteFailure]:
        for at, write in enumerate(writes):
            if moment := self._faults.due(kill_points.names_of(write)):
                return self._fail(writes, at, moment)
        return self._slurm.write(writes)

    def signal(self, keys: Sequence[str], signal: str) -> Mapping[str, str]:
        moment = self._faults.due({kill_points.SIGNAL})
        if moment == kill_points.BEFORE:
            die()
        complaints = self._slurm.signal(keys, signal)
        if moment:
            die()
        return complaints

    def _fail(self, writes: Sequence[Write], at: int, moment: str) -> Sequence[WriteFailure]:
        """Fail at one write of a batch. If the controller dies there, the earlier writes have
        reached Slurm and the later ones have not."""
        self._slurm.write(writes[: at + 1] if moment == kill_points.AFTER else writes[:at])
        return die()


def die() -> NoReturn:
    """Kill this process with SIGKILL, so that nothing is flushed, closed or cleaned up."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("dead")


def install(faults: Faults) -> None:
    """Install the faults in this process."""
    real_transaction = Ledger.transaction

    def driver(config: Config, lease: Lease | None = None, asked: Tally | None = None) -> Slurm:
        return cast(Slurm, FaultySlurm(chosen_driver(config, lease, asked), faults))

    @contextmanager
    def transaction(ledger: Ledger) -> Iterator[None]:
        moment = faults.due(_commits_under_way(sys._getframe()))
        if moment == kill_points.BEFORE:
            die()
        with real_transaction(ledger):
            yield
            if moment == kill_points.INSIDE:
                die()
        if moment:
            die()

    run.driver = driver  # type: ignore[attr-defined]
    Ledger.transaction = transaction  # type: ignore[assignment, method-assign]


def _commits_under_way(frame: FrameType | None) -> set[str]:
    found: set[str] = set()
    while frame is not None:
        name = kill_points.commits().get((frame.f_code.co_filename, frame.f_lineno))
        found |= {name} if name else set()
        frame = frame.f_back
    return found


def _wanted(word: str) -> tuple[KillPoint, int]:
    name, moment, nth = word.split(":")
    return KillPoint(name, moment), int(nth)


if __name__ == "__main__":
    replace_from_environment()
    end = sys.argv.index("--")
    install(Faults(map(_wanted, sys.argv[1:end])))
    sys.argv[1:] = sys.argv[end + 1 :]
    main()
