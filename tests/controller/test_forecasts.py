"""What the controller shows of its forecasts, and to which users."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from slurm_tiresias.controller.forecasts import Forecasts
from slurm_tiresias.core.job import Job, Snapshot
from slurm_tiresias.errors import RefusedError, TiresiasError
from slurm_tiresias.forecast.forecaster import Picture
from slurm_tiresias.forecast.past import MOST_AHEAD_S
from slurm_tiresias.forecast.ranges import Range
from slurm_tiresias.forecast.sooner import Answer, Asked
from slurm_tiresias.model import Amount, Request
from slurm_tiresias.settings import Config
from slurm_tiresias.status.published import PublishedStart
from slurm_tiresias.status.service import Peer, Question
from tests.cli.states import state, waiting

FOUND = Range(60.0, 90.0, 120.0, 180.0, 600.0)
MADE_S = 1000.0
OF_NO_USER = Peer(2**31 - 7)


def forecasts(found: Range | None = FOUND) -> Forecasts:
    made = Forecasts(Config(), Path("/nowhere/ledger.sqlite"))
    made.process.picture = Picture(MADE_S, 20, 2.0, {"1": found}, (100, 0.5, 0.2))
    return made


def shown(made: Forecasts, queued_s: float = 900.0) -> PublishedStart | None:
    job = Job("1", Request(Amount()), submitted_s=0.0, queued_s=queued_s)
    explained = made.explain(job, None, MADE_S + 30.0)
    return explained.facts["start"] if explained else None


def test_a_waiting_job_shows_its_range() -> None:
    start = shown(forecasts())
    assert start and (start.least_s, start.likely_s, start.most_s) == (1060.0, 1120.0, 1600.0)


def test_what_is_later_than_futures_look_is_not_shown() -> None:
    later_s = MOST_AHEAD_S + 1.0
    start = shown(forecasts(Range(60.0, 90.0, later_s, later_s, later_s)))
    assert start and (start.least_s, start.likely_s, start.beyond_s) == (1060.0, None, 1090.0)
    start = shown(forecasts(Range(*[later_s] * 5)))
    assert start and (start.least_s, start.beyond_s) == (None, MADE_S + MOST_AHEAD_S)


def test_a_job_that_has_run_since_shows_nothing() -> None:
    assert shown(forecasts(), queued_s=MADE_S + 1.0) is None


def test_where_ranges_do_not_hold_none_is_shown() -> None:
    start = shown(forecasts(None))
    assert start and start.likely_s is None
    assert "have held" in start.why_not


def test_nothing_is_forecast_while_the_controller_does_not_act() -> None:
    made = forecasts()
    made.offer(Snapshot(MADE_S, (), ()), acts=False)
    assert shown(made) is None


def ask(
    made: Forecasts, text: str, peer: Peer, *, private: bool, mode: str = "enforce"
) -> list[dict[str, object]]:
    service = made.service(lambda: state(waiting("1", user="alice"), mode=mode), private=private)
    answers: list[dict[str, object]] = json.loads(
        service.answer(Question(peer, text, lambda: False))
    )["answers"]
    return answers


def test_if_jobs_are_private_only_their_users_may_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    made = forecasts()
    answer = [Answer("as-it-is", "", FOUND)]
    monkeypatch.setattr(made.process, "ask", lambda _about, _most_s: answer)
    with pytest.raises(TiresiasError, match="No job 1"):
        ask(made, "1", OF_NO_USER, private=True)
    assert ask(made, "1", OF_NO_USER, private=False)
    assert ask(made, "1", Peer(os.geteuid()), private=True)


@pytest.mark.parametrize(
    "text", ["{", "{}", '{"gpus": 1}', "[" * 500, "2", "", "../../etc", "\x00", "NaN"]
)
def test_what_is_no_question_is_refused(text: str) -> None:
    with pytest.raises(TiresiasError):
        ask(forecasts(), text, OF_NO_USER, private=False)


def test_while_the_controller_does_not_act_slurms_order_is_the_answer() -> None:
    (answer,) = ask(forecasts(), "1", OF_NO_USER, private=False, mode="shadow")
    assert "Slurm's own order decides" in str(answer["start"])


def test_an_impossible_number_of_gpus_is_refused() -> None:
    asked = Asked("u")._asdict() | {"gpus": 10**9}
    with pytest.raises(RefusedError, match="possible number"):
        ask(forecasts(), json.dumps(asked), OF_NO_USER, private=False)
