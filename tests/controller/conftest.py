"""A ledger for the tests of the controller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from slurm_tiresias.store.ledger import FILE_NAME, Ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """An empty ledger."""
    with closing(Ledger(tmp_path / FILE_NAME)) as opened:
        yield opened
