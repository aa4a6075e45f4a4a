"""The folder of a replay: the calibration, and one file per policy that has run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scripts.testbed.place import UsageError
from scripts.tools.bench.replay.calibrate import Calibration
from scripts.tools.bench.replay.policies import POLICIES
from scripts.tools.bench.replay.setting import Setting

HEAD = "replay.json"
Runs = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class JobRuns:
    """A job's submission and runs, in the paper's seconds since the first submission."""

    job_id: str
    submitted_s: float
    runs: Runs


@dataclass(frozen=True, slots=True)
class Replayed:
    """One policy's run; ``took_s`` is in real seconds."""

    policy: str
    machine: str
    took_s: float
    jobs: tuple[JobRuns, ...]
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Head:
    """What all policies of a replay share."""

    setting: Setting
    calibration: Calibration
    factor_chosen: bool
    """Whether the factor was derived from the calibration rather than given as an option."""


@dataclass(frozen=True, slots=True)
class Store:
    folder: Path

    def head(self) -> Head | None:
        known = _read(self.folder / HEAD)
        if known is None:
            return None
        try:
            return Head(
                _setting(known["setting"]),
                Calibration(**known["calibration"]),
                known["factor_chosen"],
            )
        except (KeyError, TypeError) as error:
            raise UsageError(f"{self.folder / HEAD} is of another version: {error}") from error

    def keep_head(self, head: Head) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        _write(self.folder / HEAD, asdict(head))

    def keep(self, replayed: Replayed) -> None:
        _write(self._file(replayed.policy), asdict(replayed))

    def all(self) -> Mapping[str, Replayed]:
        """Return all runs so far, in the order of the policies."""
        found = {name: _read(self._file(name)) for name in POLICIES}
        return {name: _replayed(known) for name, known in found.items() if known is not None}

    def _file(self, policy: str) -> Path:
        return self.folder / f"{policy}.json"


def _setting(known: dict[str, Any]) -> Setting:
    tuples = {name: tuple(known[name]) for name in ("thresholds_gpu_s", "estimates")}
    return Setting(**{**known, **tuples})


def _replayed(known: dict[str, Any]) -> Replayed:
    jobs = tuple(
        JobRuns(job["job_id"], job["submitted_s"], tuple((a, b) for a, b in job["runs"]))
        for job in known["jobs"]
    )
    return Replayed(**{**known, "jobs": jobs, "faults": tuple(known["faults"])})


def _read(path: Path) -> dict[str, Any] | None:
    try:
        known: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise UsageError(f"{path} is not a result of a replay: {error}") from error
    return known


def _write(path: Path, what: dict[str, Any]) -> None:
    """Write atomically, so that an interrupted run leaves no partial file."""
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(what, indent=1) + "\n")
    draft.replace(path)
