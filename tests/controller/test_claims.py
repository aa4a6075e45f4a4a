"""The reports that the controller accepts: when, from which jobs, and how long they count."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_tiresias.controller.claims import Claims
from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.core.features.claims import SPEAKS_AGAIN_WITHIN_S
from slurm_tiresias.model import Claim, JobStatus, ProgressSource
from slurm_tiresias.progress.node import FOLDER
from slurm_tiresias.store.ledger import Ledger
from tests.controller.test_job_store import CONFIG, pending, running
from tests.controller.test_progress import RUN, START_S, Site, job, record

GPUS = 4


class ClaimingSite(Site):
    """Accepts the reports that are due in every cycle."""

    def begin(self) -> None:
        super().begin()
        self.claims = Claims(self.job_store, self.tracker)

    def cycle(self, *jobs: JobStatus) -> None:
        super().cycle(*jobs)
        self.claims.take(self.seen(*jobs))
        self.job_store.commit()

    def claim(self) -> Claim | None:
        return self.job_store.accounts.all["7"].claim

    def why_stopped(self) -> str:
        return self.claims.why_stopped(job(self.now_s), self.now_s)


@pytest.fixture
def site(tmp_path: Path, ledger: Ledger) -> ClaimingSite:
    (tmp_path / FOLDER).mkdir()
    return ClaimingSite(tmp_path, ledger)


def test_reports_count_once_the_job_has_run_for_a_minute(site: ClaimingSite) -> None:
    site.run_to(50)
    assert site.claim() is None
    site.run_to(60)
    claim = site.claim()
    assert claim is not None
    assert claim.total_gpu_s == pytest.approx(GPUS * 1000)
    assert claim.promised_gpu_s == pytest.approx(GPUS * (60 + 2 * 940 + 30))


def test_a_report_is_taken_once_a_minute_and_tightens_the_promise(site: ClaimingSite) -> None:
    site.run_to(60)
    first = site.claim()
    site.run_to(110)
    assert site.claim() == first
    site.run_to(120)
    later = site.claim()
    assert first is not None and later is not None
    assert later.total_gpu_s == pytest.approx(first.total_gpu_s)
    assert later.promised_gpu_s == pytest.approx(first.promised_gpu_s - GPUS * 60)


def test_a_claim_survives_a_restart_of_the_controller(site: ClaimingSite, ledger: Ledger) -> None:
    site.run_to(120)
    before = site.claim()
    assert JobStore(ledger, CONFIG, accounting=False).accounts.all["7"].claim == before


def stand_still(site: ClaimingSite, cycles: int) -> None:
    for _ in range(cycles):
        site.now_s += 20.0
        site.told[RUN] = record(200, at_s=site.now_s)
        site.cycle(job(site.now_s))


def test_the_claim_of_a_stalled_job_does_not_count(site: ClaimingSite) -> None:
    site.run_to(200)
    assert site.why_stopped() == ""
    stand_still(site, cycles=10)
    assert site.why_stopped() == "it has made no step for unusually long"
    claim = site.claim()
    stand_still(site, cycles=10)
    assert site.claim() == claim, "nothing is taken from a job that stands still"


def test_a_restarted_jobs_claim_counts_for_a_while_without_a_report(site: ClaimingSite) -> None:
    site.run_to(200)
    site.cycle(pending(restarts=1, raw_id=7))
    del site.told[RUN]
    again_s = site.now_s + 100.0

    def again() -> JobStatus:
        return running(again_s, site.now_s - again_s, raw_id=7, restarts=1)

    site.now_s = again_s + 10.0
    site.cycle(again())
    assert site.claims.why_stopped(again(), site.now_s) == ""
    site.now_s = again_s + SPEAKS_AGAIN_WITHIN_S + 10.0
    site.cycle(again())
    assert site.claims.why_stopped(again(), site.now_s) == "it has not reported in this run"


def test_the_promise_of_a_job_lasts_after_its_last_step(site: ClaimingSite) -> None:
    site.run_to(990)
    before = site.claim()
    assert before is not None and before.promised_gpu_s >= GPUS * 1030
    for after_s in range(1000, 1300, 20):
        site.now_s = START_S + after_s
        site.told[RUN] = record(1000, at_s=site.now_s)
        site.cycle(job(site.now_s))
    assert site.claim() == before
    assert site.why_stopped() == ""


def test_a_claim_by_a_bar_does_not_count_once_the_bar_has_ended(site: ClaimingSite) -> None:
    site.source = ProgressSource.OUTPUT
    site.run_to(990)
    assert site.claim() is not None
    assert site.why_stopped() == ""
    site.run_to(1000)
    assert site.why_stopped() == "what it printed has reached its end, and it goes on"


def test_a_job_that_reports_no_total_has_no_claim(site: ClaimingSite) -> None:
    site.run_to(200, total=None)
    assert site.claim() is None
