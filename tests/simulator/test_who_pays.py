"""Whose jobs take how long compared with a fair share and with stock Slurm."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_tiresias.simulator.who_pays import MOST_LISTED, who_pays
from tests.simulator.test_report import outcome, report

WIDE_FIRST = (outcome((0, 100), gpus=4), outcome((100, 150), gpus=2))
NARROW_FIRST = (outcome((50, 150), gpus=4), outcome((0, 50), gpus=2))
"""The same two jobs on four GPUs. With a fair share they would end after 125 s and 50 s."""


def test_each_job_is_compared_with_its_fair_share_and_with_itself_under_stock_slurm() -> None:
    found = report(("tiresias-l", WIDE_FIRST), ("slurm", NARROW_FIRST))
    (group,) = who_pays(found, found.results[0], "gpus")
    assert (group.name, group.jobs) == ("2 to 4", 2)
    assert group.over_fair_share.median == pytest.approx((100 / 125 + 150 / 50) / 2)
    assert (group.over_fair_share.most, group.over_fair_share.above_twice) == (3.0, 1)
    assert group.over_stock is not None
    assert group.over_stock.median == pytest.approx((100 / 150 + 150 / 50) / 2)


def test_without_stock_slurm_there_is_nothing_to_compare_with() -> None:
    found = report(("tiresias-l", WIDE_FIRST))
    (group,) = who_pays(found, found.results[0], "user")
    assert (group.name, group.over_stock) == ("", None)


def test_those_that_pay_most_come_first_and_the_rest_is_left_out() -> None:
    jobs = tuple(outcome((10 * number, 10 * number + 10)) for number in range(3 * MOST_LISTED))
    jobs = tuple(
        one._replace(job=replace(one.job, job_id=str(n), user=f"u{n}"))
        for n, one in enumerate(jobs)
    )
    found = report(("tiresias-l", jobs))
    groups = who_pays(found, found.results[0], "user")
    assert len(groups) == MOST_LISTED
    assert groups[0].name == f"u{3 * MOST_LISTED - 1}"
