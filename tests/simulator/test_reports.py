"""Simulated jobs that report, and time limits set by simulated users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import pytest

from slurm_tiresias.settings import Config
from slurm_tiresias.simulator import run
from slurm_tiresias.simulator.engine import Outcome, Timing
from slurm_tiresias.simulator.limits import LIMIT_MODELS, with_limits
from slurm_tiresias.simulator.reports import Reporter, ReportModel
from slurm_tiresias.simulator.sim_cluster import Costs, parse_cluster
from slurm_tiresias.simulator.workload import Workload, paper480

WORKLOAD = paper480()
SITE = parse_cluster("15x4", "skew")


def outcomes(
    reports: ReportModel | None = None, workload: Workload = WORKLOAD, policy: str = "tiresias-l"
) -> Sequence[Outcome]:
    costs = Costs(SITE, speeds=True, flat_s=None)
    setup = run.Setup(SITE, Config(), costs, Timing(60.0, 5.0), reports=reports)
    return run.simulate(workload, policy, setup)


def average_s(found: Sequence[Outcome]) -> float:
    return fmean(one.jct_s for one in found)


@pytest.fixture(scope="module")
def unknown_s() -> float:
    """The average if no job reports and no limit is known."""
    return average_s(outcomes())


def test_the_more_jobs_report_the_closer_is_the_clairvoyant_average(unknown_s: float) -> None:
    half_s, all_s = (average_s(outcomes(ReportModel(share))) for share in (0.5, 1.0))
    srsf_s = average_s(outcomes(policy="srsf"))
    assert srsf_s < all_s < 1.25 * srsf_s < half_s < 0.9 * unknown_s


def test_reports_that_vary_make_few_more_preemptions() -> None:
    exact, rough = (outcomes(ReportModel(1.0, sigma)) for sigma in (0.0, 0.5))
    preemptions = [sum(one.preemptions for one in found) for found in (exact, rough)]
    assert preemptions[1] <= preemptions[0] + 0.03 * len(WORKLOAD.jobs)


def test_jobs_that_lie_are_slower_than_honest_ones_and_harmless(unknown_s: float) -> None:
    model = ReportModel(0.25, liars=0.25)
    liars = {
        job.job_id
        for job in WORKLOAD.jobs
        if model.reporter(WORKLOAD.name, job.job_id) is Reporter.LIAR
    }
    assert len(liars) > 80
    lying_s, honest_s = (
        fmean(one.jct_s for one in outcomes(each) if one.job.job_id in liars)
        for each in (model, ReportModel(0.5))
    )
    assert lying_s > honest_s
    assert average_s(outcomes(ReportModel(0.0, liars=1.0))) < 1.1 * unknown_s


def test_realistic_limits_help_and_equal_limits_change_nothing(unknown_s: float) -> None:
    assert average_s(outcomes(workload=with_limits(WORKLOAD, "10x"))) < 0.9 * unknown_s
    assert average_s(outcomes(workload=with_limits(WORKLOAD, "alike"))) == unknown_s


@pytest.mark.parametrize("model", LIMIT_MODELS)
def test_no_drawn_limit_is_shorter_than_its_job(model: str) -> None:
    limited = with_limits(WORKLOAD, model)
    assert all(job.limit_s is not None and job.limit_s >= job.duration_s for job in limited.jobs)
    assert [replace(job, limit_s=None) for job in limited.jobs] == list(WORKLOAD.jobs)
    assert LIMIT_MODELS[model][1] in limited.notes[-1]
