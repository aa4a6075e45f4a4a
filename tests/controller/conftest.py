"""A ledger for the tests of the controller, and short runs at the bound on the slowdown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from slurm_tiresias.core.features import max_slowdown
from slurm_tiresias.model import USUAL_STAKE
from slurm_tiresias.store.ledger import FILE_NAME, Ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """An empty ledger."""
    with closing(Ledger(tmp_path / FILE_NAME)) as opened:
        yield opened


@pytest.fixture
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds in place of minutes: what a job of unknown length runs, and what a restart takes."""
    monkeypatch.setattr(max_slowdown, "LEAST_RUN_S", 5.0)
    monkeypatch.setattr(max_slowdown, "NEAR_S", 1.0)
    usual = USUAL_STAKE._replace(restart_s=1.0)
    monkeypatch.setattr(f"{max_slowdown.__name__}.USUAL_STAKE", usual)
