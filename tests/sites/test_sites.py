"""A short run of random sites and requests; ``scripts/dev chaos sites`` runs for hours."""

from __future__ import annotations

import shutil

import pytest

from scripts.testbed.sites import in_memory, on_slurm


@pytest.mark.parametrize("first", range(0, 80, 20))
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
