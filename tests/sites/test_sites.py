"""A short run of random sites and requests; ``scripts/dev chaos sites`` runs for hours."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from scripts.testbed.sites import in_memory, on_slurm
from scripts.tools.chaos import outcome, sites
from scripts.tools.chaos.main import chaos
from scripts.tools.document import Document


@pytest.mark.parametrize("first", range(0, 40, 20))
def test_random_requests_on_random_sites_in_memory(first: int) -> None:
    for seed in range(first, first + 20):
        played = in_memory.play(seed)
        assert not played.found, played.told()


@pytest.mark.slurm
def test_random_requests_on_a_random_real_site() -> None:
    if shutil.which("slurmctld", path="/usr/sbin:/usr/bin:/sbin:/bin") is None:
        pytest.skip("no slurmctld on this machine")
    played = on_slurm.play(1)
    assert not played.found, played.told()


@pytest.mark.parametrize("options", [[], ["--record"]])
def test_chaos_writes_its_record_only_if_it_is_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    written = tmp_path / "reliability.md"
    monkeypatch.setattr(outcome, "RELIABILITY", Document(written, "# Reliability\n"))
    monkeypatch.setattr(sites, "in_batches", lambda *_asked: Counter(rounds=1))
    ended = CliRunner().invoke(chaos, [*options, "sites"])
    assert ended.exit_code == 0, ended.output
    assert "Random sites in memory" in written.read_text() if options else not written.exists()
