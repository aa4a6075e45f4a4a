"""A short form of ``scripts/dev chaos load``: a submission storm, and a mass cancel."""

from __future__ import annotations

import shutil

import pytest

from scripts.tools.chaos.load import Load, measured

pytestmark = pytest.mark.slurm


def test_a_storm_of_jobs_and_a_mass_cancel_cost_no_cycle_and_no_job() -> None:
    if shutil.which("slurmctld", path="/usr/sbin:/usr/bin:/sbin:/bin") is None:
        pytest.skip("no slurmctld on this machine")
    text, wrong = measured(Load(running=16, pending=40, cycles=12, storm=40, tasks=200))
    assert wrong == []
    assert "a mass cancel" in text.lower()
