"""How long a run is kept, and how long work that was lost protects it."""

from __future__ import annotations

import pytest

from slurm_tiresias.core.features.lost_work import redoing_for_s, stuck_runs
from slurm_tiresias.core.features.min_run import protected_for_s
from slurm_tiresias.model import PastLosses, ProgramCosts
from slurm_tiresias.settings.preemption import PreemptionConfig

SITE = PreemptionConfig(min_run_s=120.0)


def costs(unsaved_s: float, measured: int = 1) -> ProgramCosts:
    return ProgramCosts(restart_s=30.0, unsaved_s=unsaved_s, measured=measured)


@pytest.mark.parametrize(("preemptions", "kept_s"), [(0, 120), (1, 600), (2, 1200), (10**9, 1800)])
def test_each_preemption_has_a_job_kept_longer(preemptions: int, kept_s: float) -> None:
    assert protected_for_s(preemptions, SITE) == kept_s
    assert protected_for_s(preemptions, SITE, costs=costs(3000.0, measured=0)) == kept_s


@pytest.mark.parametrize(
    ("unsaved_s", "kept_s"), [(0.0, 150), (10.0, 200), (3000.0, 1800), (1e9, 1800)]
)
def test_a_run_is_kept_for_five_times_the_measured_cost(unsaved_s: float, kept_s: float) -> None:
    assert protected_for_s(0, SITE, costs=costs(unsaved_s)) == kept_s
    assert protected_for_s(9, SITE, costs=costs(unsaved_s)) == kept_s


def test_a_minimum_run_time_beyond_the_longest_stays_as_it_is() -> None:
    assert protected_for_s(9, PreemptionConfig(min_run_s=7200.0)) == 7200
    assert protected_for_s(9, PreemptionConfig(min_run_s=0.0), costs=costs(3000.0)) == 0


def test_a_drilled_program_starts_with_a_shorter_minimum() -> None:
    site = PreemptionConfig(min_run_s=120.0, drilled_min_run_s=10.0)
    assert [protected_for_s(n, site, drilled=True) for n in (0, 1, 2)] == [10, 50, 100]
    assert protected_for_s(0, site) == 120
    assert protected_for_s(0, SITE, drilled=True) == 120, "where the site has no such minimum"


def test_the_minimum_exceeds_its_maximum_only_for_jobs_that_save_nothing() -> None:
    assert protected_for_s(6, SITE, PastLosses(stuck_runs=1)) == 1800
    assert protected_for_s(6, SITE, PastLosses(stuck_runs=2)) == 120 * 2**6
    assert protected_for_s(1, SITE, PastLosses(stuck_runs=2)) == 240
    assert protected_for_s(0, SITE, PastLosses(3, stuck_runs=2)) == 960, "as its program lost all"


@pytest.mark.parametrize(
    ("starts", "stuck"),
    [
        ((), 0),
        ((0,), 0),
        ((0, 0), 1),
        ((0, 0, 0), 2),
        ((0, 100), 0),
        ((0, 100, 100, 100), 2),
        ((0, 100, 0, 50), 2),
        ((0, 100, 0, 101), 0),
        ((0, 0, 0, 5, 5), 1),
    ],
)
def test_a_run_saved_nothing_if_the_next_is_no_further(starts: tuple[int, ...], stuck: int) -> None:
    assert stuck_runs(starts) == stuck


def test_redoing_lost_work_is_protected_for_twice_its_time() -> None:
    assert redoing_for_s([]) == 0
    assert redoing_for_s([(600.0, 0.0)]) == 1200
    # Work that was redone in a run is not lost anew.
    assert redoing_for_s([(600.0, 0.0), (900.0, 600.0)]) == 1800
    # A run that was protected to its bound adds nothing.
    assert redoing_for_s([(600.0, 0.0), (1200.0, 1200.0)]) == 1200
    # No run is longer than twice the longest of those before it.
    assert redoing_for_s([(60.0, 0.0)] * 100) == 120
