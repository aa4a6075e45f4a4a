"""How much one user's jobs may make others lose."""

from __future__ import annotations

import math

import pytest

from slurm_tiresias.core.features.losses import (
    LEAVES_WITHIN_S,
    Loss,
    RecentLosses,
    late_s,
    losses_of,
    lost_gpu_s,
)
from slurm_tiresias.settings.preemption import PreemptionConfig

SITE = PreemptionConfig(budget_share=0.1)
GPUS = 10
BUDGET_GPU_S = 3600.0


def losses(*pairs: tuple[float, float], user: str = "eve") -> RecentLosses:
    return RecentLosses(SITE, (Loss(at_s, user, gpu_s) for at_s, gpu_s in pairs))


@pytest.mark.parametrize(("ran_s", "lost"), [(-5, 0), (0, 0), (60, 240), (300, 1200), (9000, 1200)])
def test_a_run_counts_as_far_as_it_ran_up_to_five_minutes(ran_s: float, lost: float) -> None:
    assert lost_gpu_s(4, ran_s) == lost


def test_a_user_at_the_budget_preempts_no_more_and_another_does() -> None:
    recent = losses((0.0, BUDGET_GPU_S - 1))
    assert recent.over_budget(10.0, GPUS) == frozenset()
    recent.add(Loss(10.0, "eve", 1.0))
    recent.add(Loss(10.0, "ann", BUDGET_GPU_S - 1))
    assert recent.over_budget(10.0, GPUS) == {"eve"}


def test_losses_before_the_window_no_longer_count() -> None:
    recent = losses((0.0, 3000.0), (100.0, 1000.0))
    assert recent.over_budget(200.0, GPUS) == {"eve"}
    assert recent.next_change_s == 3600.0
    assert recent.over_budget(3599.0, GPUS) == {"eve"}
    assert recent.over_budget(3600.0, GPUS) == frozenset()
    assert recent.next_change_s == math.inf


def test_the_budget_follows_the_size_of_the_cluster() -> None:
    recent = losses((0.0, BUDGET_GPU_S))
    assert recent.over_budget(1.0, GPUS) == {"eve"}
    assert recent.over_budget(1.0, 2 * GPUS) == frozenset()


def test_without_a_share_there_is_no_bound() -> None:
    recent = RecentLosses(PreemptionConfig(budget_share=0.0), [Loss(0.0, "eve", 1e9)])
    assert recent.over_budget(1.0, GPUS) == frozenset()


def test_lost_runs_are_charged_to_the_preemptor_and_late_exits_to_the_victim() -> None:
    ran = (4, 100.0)
    assert losses_of(9.0, "ann", "eve", *ran, 0.0) == (Loss(9.0, "ann", 400.0),)
    assert losses_of(9.0, "ann", "eve", *ran, 90.0) == (
        Loss(9.0, "ann", 400.0),
        Loss(9.0, "eve", 360.0),
    )
    assert losses_of(9.0, "eve", "eve", *ran, 500.0) == ()


def test_losses_recorded_while_the_clock_was_ahead_do_not_count() -> None:
    days_ahead = 86_400.0 * 30
    recent = losses((days_ahead, BUDGET_GPU_S))
    assert recent.over_budget(days_ahead + 1.0, GPUS) == {"eve"}
    assert recent.over_budget(10.0, GPUS) == frozenset()
    recent.add(Loss(20.0, "eve", BUDGET_GPU_S))
    assert recent.over_budget(20.0, GPUS) == {"eve"}
    assert recent.over_budget(3620.0, GPUS) == frozenset()


@pytest.mark.parametrize(
    ("grace_until_s", "end_s", "late"),
    [
        (1020.0, 1021.0, 0.0),
        (1020.0, 1500.0, 0.0),
        (1020.0 + LEAVES_WITHIN_S, 1500.0, 0.0),
        (1110.0 + LEAVES_WITHIN_S, 1500.0, 90.0),
        (1110.0 + LEAVES_WITHIN_S, 1025.0, 0.0),
    ],
    ids=["in time", "others are late", "a cycle later", "its own grace is long", "leaves early"],
)
def test_a_victim_is_late_by_its_own_grace_beyond_that_of_the_site(
    grace_until_s: float, end_s: float, late: float
) -> None:
    assert late_s(1000.0, grace_until_s, end_s, 20.0) == late
