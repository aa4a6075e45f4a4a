"""What a preemption of a simulated job would lose, as the core reckons it."""

from __future__ import annotations

import math

import pytest

from slurm_tiresias.core.features.at_stake import work_at_stake
from slurm_tiresias.model import ProgramCosts
from slurm_tiresias.simulator.saves import NEVER_S, ON_REQUEST_S, reported

STARTED_S, FIRST_S, RESTART_S = 100.0, 130.0, 30.0


@pytest.mark.parametrize(
    ("every_s", "saved_s", "now_s", "lost_s"),
    [
        (NEVER_S, None, 110.0, 0.0),
        (NEVER_S, None, 630.0, 500.0),
        (60.0, None, 150.0, 20.0),
        (60.0, 190.0, 215.0, 25.0),
        (ON_REQUEST_S, None, 630.0, 0.0),
    ],
)
def test_only_work_since_the_last_save_of_the_run_is_lost(
    every_s: float, saved_s: float | None, now_s: float, lost_s: float
) -> None:
    progress = reported(1, now_s, FIRST_S, saved_s, every_s)
    asked = float(every_s == ON_REQUEST_S)
    costs = ProgramCosts(RESTART_S, every_s / 2.0, measured=1, saved_when_asked=asked)
    stake = work_at_stake(STARTED_S, progress, costs)
    assert stake is not None
    assert stake.lost_s(now_s) == lost_s + RESTART_S
    assert math.isfinite(stake.lost_s(now_s))
