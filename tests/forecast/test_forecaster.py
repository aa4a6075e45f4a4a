"""Pictures of all waiting jobs, and what is learned from them."""

from __future__ import annotations

from slurm_tiresias.core.features.make import make_policy
from slurm_tiresias.core.job import Job
from slurm_tiresias.forecast.forecaster import (
    FOLLOWED,
    FOLLOWED_EVERY_S,
    FUTURES,
    Forecaster,
    Picture,
)
from slurm_tiresias.forecast.futures import FIRST_DAY, Drawn, Futures, Present, present
from slurm_tiresias.forecast.past import Past, PastJob
from slurm_tiresias.forecast.ranges import Calibration
from slurm_tiresias.forecast.sooner import answers
from tests.forecast.test_futures import CONFIG, MOST_S, NODES, SITE, running

NOW_S = 100.0
POLICY = make_policy(CONFIG.policy)
HISTORY = [PastJob(float(n), 4, "ada", "", None, 600.0 + n, ended=True) for n in range(20)]


def look(
    forecaster: Forecaster, jobs: list[Job], now_s: float, started_s: float | None = None
) -> Picture:
    at = Present(now_s, NODES[:1], present(now_s, NODES, jobs).rows)
    made = Futures(at, CONFIG, Past(HISTORY, now_s), POLICY)
    return forecaster.look(made, MOST_S, lambda _key, _since_s: started_s)


def waits() -> Job:
    return Job("2", SITE.request(4), submitted_s=90.0, settled_s=NOW_S, queued_s=90.0)


def test_a_job_that_started_and_ended_between_two_pictures_is_learned_from() -> None:
    forecaster = Forecaster()
    picture = look(forecaster, [running("1", 4, 5000.0), waits()], NOW_S)
    assert picture.futures == FUTURES
    found = picture.ranges["2"]
    assert found and 3500.0 < found.likely_s < 7000.0
    look(forecaster, [], NOW_S + 9000.0, started_s=NOW_S + 5000.0)
    (one,) = forecaster.calibration.awaited
    assert one.started and one.waited_s == 5000.0
    assert forecaster.calibration.coverage() == (1, 1.0, 1.0)


def test_a_cancelled_job_waited_for_so_long_at_least() -> None:
    forecaster = Forecaster()
    jobs = [running("1", 4, 5000.0), waits()]
    look(forecaster, jobs, NOW_S)
    look(forecaster, jobs, NOW_S + 60.0)
    for later_s in (120.0, 180.0):
        look(forecaster, [], NOW_S + later_s)
        (one,) = forecaster.calibration.awaited
        assert (one.waits, one.started, one.waited_s) == (False, False, 60.0)
    assert forecaster.calibration.coverage()[0] == 0


def test_a_few_jobs_are_followed_at_a_time() -> None:
    """Errors of one picture are alike: thousands of them would displace those of earlier days."""
    forecaster = Forecaster()
    jobs = [running("1", 4, 50_000.0)]
    for number in range(2, 40):
        jobs.append(Job(f"{number}", SITE.request(4), submitted_s=9.0, settled_s=9.0, queued_s=9.0))
    for later_s, followed in ((0.0, 1), (60.0, 1), (FOLLOWED_EVERY_S, 2)):
        look(forecaster, jobs, NOW_S + later_s)
        assert len(forecaster.calibration.awaited) == followed * FOLLOWED


def test_ranges_are_wider_until_a_site_has_been_seen_for_a_day() -> None:
    def sigma(days: float) -> float:
        job = HISTORY[0]._replace(submitted_s=NOW_S - days * 86400.0)
        made = Futures(present(NOW_S, NODES, []), CONFIG, Past([job], NOW_S), POLICY)
        drawn = [Drawn({"2": wait_s}, 0.0) for wait_s in (100.0, 1000.0, 9000.0)]
        return made.spread_in(drawn, "2").sigma

    assert sigma(0.9) == FIRST_DAY * sigma(1.1)


def test_where_hardly_any_job_has_ended_nothing_is_forecast() -> None:
    at = Present(NOW_S, NODES[:1], present(NOW_S, NODES, [running("1", 4, 5000.0), waits()]).rows)
    made = Futures(at, CONFIG, Past(HISTORY[:3], NOW_S), POLICY)
    assert not Forecaster().look(made, MOST_S, lambda *_: None).ranges
    assert not answers(made, waits(), Calibration(), ("gpu",))
