"""The folder of a replay: the calibration, and one file per policy that has run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from scripts.testbed.cluster.rebuilt import rebuilt
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
        known: Head | None = _read(Head, self.folder / HEAD)
        return known

    def keep_head(self, head: Head) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        _write(self.folder / HEAD, asdict(head))

    def keep(self, replayed: Replayed) -> None:
        _write(self._file(replayed.policy), asdict(replayed))

    def all(self) -> Mapping[str, Replayed]:
        """Return all runs so far, in the order of the policies."""
        found = {name: _read(Replayed, self._file(name)) for name in POLICIES}
        return {name: run for name, run in found.items() if run is not None}

    def _file(self, policy: str) -> Path:
        return self.folder / f"{policy}.json"


def _read(kind: type, path: Path) -> Any:
    try:
        return rebuilt(kind, json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise click.UsageError(f"{path} is not a result of this replay: {error}") from error


def _write(path: Path, what: dict[str, Any]) -> None:
    """Write atomically, so that an interrupted run leaves no partial file."""
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(what, indent=1) + "\n")
    draft.replace(path)
