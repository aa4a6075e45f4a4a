"""Pictures of all waiting jobs, and what is learned from them."""

from __future__ import annotations

import math

from slurm_tiresias.core.features.make import make_policy
from slurm_tiresias.core.job import Job
from slurm_tiresias.forecast.forecaster import FUTURES, Forecaster, Picture
from slurm_tiresias.forecast.futures import Futures, Present, present
from slurm_tiresias.forecast.past import Past, PastJob
from tests.forecast.test_futures import CONFIG, MOST_S, NODES, SITE, running

NOW_S = 100.0
HISTORY = [PastJob(float(n), 4, "ada", "", None, 600.0 + n, ended=True) for n in range(20)]


def look(
    forecaster: Forecaster, jobs: list[Job], now_s: float, started_s: float | None = None
) -> Picture:
    at = Present(now_s, NODES[:1], present(now_s, NODES, jobs).rows)
    past = Past(HISTORY, now_s)
    made = Futures(at, CONFIG, past, make_policy(CONFIG.policy))
    return forecaster.look(made, past, MOST_S, lambda _key, _since_s: started_s)


def waits() -> Job:
    return Job("2", SITE.request(4), submitted_s=90.0, settled_s=NOW_S, queued_s=90.0)


def test_a_job_that_started_and_ended_between_two_pictures_is_learned_from() -> None:
    forecaster = Forecaster(CONFIG)
    picture = look(forecaster, [running("1", 4, 5000.0), waits()], NOW_S)
    assert picture.futures == FUTURES
    raw = picture.raw["2"]
    assert raw and 3500.0 < math.exp(raw.middle) < 7000.0
    assert picture.corrected["2"] is None, "it is not known yet how far such ranges hold"
    look(forecaster, [], NOW_S + 9000.0, started_s=NOW_S + 5000.0)
    assert len(forecaster.calibration.scores) == 1


def test_a_job_that_was_cancelled_is_not_learned_from() -> None:
    forecaster = Forecaster(CONFIG)
    look(forecaster, [running("1", 4, 5000.0), waits()], NOW_S)
    look(forecaster, [], NOW_S + 60.0)
    assert not forecaster.calibration.scores


def test_where_hardly_any_job_has_ended_nothing_is_forecast() -> None:
    at = Present(NOW_S, NODES[:1], present(NOW_S, NODES, [running("1", 4, 5000.0), waits()]).rows)
    past = Past(HISTORY[:3], NOW_S)
    made = Futures(at, CONFIG, past, make_policy(CONFIG.policy))
    assert not Forecaster(CONFIG).look(made, past, MOST_S, lambda *_: None).raw
