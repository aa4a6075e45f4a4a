"""The progress of a job that status and explain show, from run to run."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_tiresias.controller.feed import Feed
from slurm_tiresias.controller.publish import nothing_yet, report
from slurm_tiresias.core.engine import decide
from slurm_tiresias.core.features.make import make_policy
from slurm_tiresias.model import JobStatus, ProgressSource
from slurm_tiresias.profiler.run_id import RunId
from slurm_tiresias.progress.node import FOLDER
from slurm_tiresias.status.published import PublishedProgress
from slurm_tiresias.store.ledger import Ledger
from tests.controller.fed import fed
from tests.controller.test_job_store import CONFIG, pending, running
from tests.controller.test_progress import START_S, Site, job, record
from tests.controller.test_told_apart import CLUSTER
from tests.known import known


@pytest.fixture
def site(tmp_path: Path, ledger: Ledger) -> Site:
    (tmp_path / FOLDER).mkdir()
    return Site(tmp_path, ledger)


def shown(site: Site, status: JobStatus) -> PublishedProgress | None:
    """What is published of a job after a cycle."""
    site.cycle(status)
    snapshot = fed(Feed(site.job_store, CONFIG, progress=site.tracker), site.seen(status))
    policy = make_policy(CONFIG.policy)
    plan = decide(snapshot, policy, CONFIG)
    before = nothing_yet(CLUSTER, CONFIG, "shadow")
    of_cycle = (CONFIG, before, snapshot, plan, site.job_store)
    return report(*of_cycle, policy, ()).jobs[0].progress


def test_the_progress_of_a_former_run_goes_when_the_job_runs_again(site: Site) -> None:
    """It waits with the progress of its last run, and then runs without a report at first."""
    site.run_to(500, saved_step=400, saved_s=START_S + 400)
    site.told.clear()
    waits = known(shown(site, pending("7", raw_id=7, restarts=1)))
    assert waits.step == 500
    assert waits.remaining_s == pytest.approx(600.0)
    again_s = site.now_s = site.now_s + 20.0
    for passed_s in (0.0, 10.0, 240.0):
        site.now_s = again_s + passed_s
        again = running(again_s, passed_s, raw_id=7, restarts=1)
        assert shown(site, again) is None
    site.told[RunId(7, 1, "n1")] = record(410, at_s=site.now_s)
    now = known(shown(site, again))
    assert now.step == 410


def test_a_bar_that_has_ended_while_the_job_goes_on_gives_no_eta(site: Site) -> None:
    site.source = ProgressSource.OUTPUT
    site.run_to(1000)
    ended = known(shown(site, job(site.now_s)))
    assert (ended.step, ended.total) == (1000, 1000)
    assert (ended.eta_s, ended.remaining_s, ended.remaining_most_s) == (None, None, None)


def test_the_last_step_of_a_job_that_reports_leaves_nothing_to_do(site: Site) -> None:
    site.run_to(1000)
    last = known(shown(site, job(site.now_s)))
    assert last.remaining_s == 0.0
