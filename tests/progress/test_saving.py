"""Which victims are asked to save, and what counts as their answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurm_tiresias.job.record import Record
from slurm_tiresias.job.requests import SAVE_SIGNALS
from slurm_tiresias.job_hints import checkpoint_of
from slurm_tiresias.model import ASK_SIGNAL, Estimate, JobProgress, ProgressSource
from slurm_tiresias.progress.reported_run import ReportedRun
from slurm_tiresias.progress.saving import asked, has_saved_since, is_asked
from slurm_tiresias.settings.preemption import PreemptionConfig

NOW_S = 2000.0
SITE = PreemptionConfig()
LISTENS = JobProgress(
    0, ProgressSource.REPORTS, "running", 0, 50, 100, NOW_S, NOW_S, 120.0, listens=True
)


def test_the_library_takes_the_signal_for_a_request_to_save() -> None:
    assert f"SIG{ASK_SIGNAL}" in [number.name for number in SAVE_SIGNALS]


@pytest.mark.parametrize(
    ("job", "progress", "site", "over_budget", "is_so"),
    [
        ({}, {}, {}, False, True),
        ({}, None, {}, False, False),
        ({}, {"listens": False}, {}, False, False),
        ({}, {"state": "saving"}, {}, False, True),
        ({}, {"state": "done"}, {}, False, False),
        ({}, {"state": "leaving"}, {}, False, False),
        ({}, {"lost": True}, {}, False, False),
        ({}, {"advanced_s": NOW_S - 121.0}, {}, False, False),
        ({}, {"per_step": Estimate(59.0, 50.0, 70.0)}, {}, False, True),
        ({}, {"per_step": Estimate(61.0, 50.0, 70.0)}, {}, False, False),
        ({"restarts": 1}, {}, {}, False, False),
        ({"comment": "tiresias:checkpoint=USR2@20"}, {}, {}, False, False),
        ({}, {}, {"checkpoint": "USR1@30"}, False, False),
        ({}, {}, {"max_grace_s": 0.0}, False, False),
        ({}, {}, {}, True, False),
    ],
)
def test_a_job_without_a_signal_is_asked_if_its_run_saves_on_request(
    job: dict[str, Any],
    progress: dict[str, Any] | None,
    site: dict[str, Any],
    over_budget: bool,
    is_so: bool,
) -> None:
    told = None if progress is None else replace(LISTENS, **progress)
    config = replace(SITE, **site)
    own = checkpoint_of("", str(job.get("comment", "")), config)
    restarts = int(job.get("restarts", 0))
    assert is_asked(own, restarts, told, config, NOW_S, over_budget=over_budget) is is_so


def test_the_time_to_save_is_no_longer_than_the_longest_grace() -> None:
    assert asked(SITE).grace_s == 60.0
    assert asked(PreemptionConfig(max_grace_s=20.0)).grace_s == 20.0


@pytest.mark.parametrize(
    ("progress", "has_saved"),
    [
        ({"answered_s": 1995.0}, True),
        ({"answered_s": 1989.0}, True),  # clocks that differ a little
        ({"answered_s": 1987.0}, False),
        ({"answered_s": None}, False),
        ({"answered_s": None, "saved_s": 1999.0}, False),  # when it began is unknown
        ({"answered_s": 1995.0, "restarts": 1}, False),
        ({"answered_s": 1995.0, "state": "done"}, False),
    ],
)
def test_only_an_answering_save_ends_the_grace(progress: dict[str, Any], has_saved: bool) -> None:
    assert has_saved_since(replace(LISTENS, **progress), 0, signalled_s=1990.0) is has_saved


@pytest.mark.parametrize("behind_s", [30.0, 600.0])
def test_a_node_whose_clock_is_behind_only_makes_the_grace_longer(behind_s: float) -> None:
    """It answered 5 s after the signal, but by its clock the answer may seem to come before it."""
    run = ReportedRun(0)
    at_s = NOW_S - behind_s
    record = Record(5, 10, at_s, 0, at_s - 60.0, listens=True, answered_s=at_s - 5.0)
    before = replace(record, step=4, at_s=at_s - 20.0, answered_s=None)
    run.take(ProgressSource.REPORTS, before, NOW_S - 20.0, -20.0)
    run.take(ProgressSource.REPORTS, record, NOW_S, 0.0)
    answered_s = run.progress.answered_s
    assert answered_s is not None
    assert answered_s <= NOW_S - 5.0


def test_an_old_answer_that_a_new_controller_reads_ends_no_grace() -> None:
    """Its age is unknown: the clock of the node may be behind."""
    run = ReportedRun(0)
    record = Record(5, 10, NOW_S - 130.0, 0, 0.0, listens=True, answered_s=NOW_S - 130.0)
    run.take(ProgressSource.REPORTS, record, NOW_S, 0.0)
    assert not has_saved_since(run.progress, 0, signalled_s=NOW_S)
    run.take(ProgressSource.REPORTS, replace(record, step=6, at_s=NOW_S + 9.0), NOW_S + 9.0, 9.0)
    assert not has_saved_since(run.progress, 0, signalled_s=NOW_S)
