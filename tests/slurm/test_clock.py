"""Which clock counts if this host's differs from slurmctld's."""

from __future__ import annotations

import logging

import pytest

from slurm_tiresias.errors import SlurmAnswerError
from slurm_tiresias.model import JobState
from slurm_tiresias.slurm.clock import Moment, SlurmClock
from slurm_tiresias.slurm.commands import CommandSlurm
from slurm_tiresias.slurm.protocol import Observation
from tests.controller.test_job_store import pending, running

BEGAN = Moment(10_000.0, 50.0)


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[Moment]:
    """When the comparison is made: two seconds after it began unless a test says otherwise."""
    moments = [Moment(10_002.0, 52.0)]
    monkeypatch.setattr(Moment, "now", lambda: moments[-1])
    return moments


@pytest.mark.parametrize("shown_s", [9_997, 9_999, 10_002, 10_005])
def test_a_slow_answer_and_a_truncated_fraction_are_not_taken_for_a_wrong_clock(
    ended: list[Moment], shown_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    clock = SlurmClock()
    assert clock.compare(BEGAN, shown_s)
    assert clock.ahead_s == 0 and not caplog.records and ended


@pytest.mark.parametrize(
    ("shown_s", "ahead_s", "said"),
    [(13_600, 3_600, "is 3600 s behind slurmctld's"), (6_400, -3_600, "is 3600 s ahead of")],
)
def test_a_wrong_clock_is_logged_once_and_its_correction_once(
    ended: list[Moment], shown_s: float, ahead_s: float, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = SlurmClock()
    with caplog.at_level(logging.WARNING):
        for late_s in (0, 1, 2):
            assert clock.compare(BEGAN, shown_s + late_s)
        assert clock.ahead_s == pytest.approx(ahead_s, abs=1)
        assert clock.compare(BEGAN, 10_001)
    assert clock.ahead_s == 0 and ended
    assert [said in record.getMessage() for record in caplog.records] == [True, False]
    assert "agrees" in caplog.records[-1].getMessage()


def test_an_observation_made_during_a_clock_step_is_discarded(ended: list[Moment]) -> None:
    ended.append(Moment(13_602.0, 52.0))
    assert not SlurmClock().compare(BEGAN, 10_001)


@pytest.mark.parametrize(
    ("ahead_s", "squeue_says_s"), [(-3600, 3630), (3600, 0)], ids=["ahead", "behind"]
)
def test_running_time_is_counted_by_slurms_clock(
    ended: list[Moment], ahead_s: float, squeue_says_s: float
) -> None:
    """squeue computes the time from this host's clock, and shows INVALID for a start in the
    future."""
    clock = SlurmClock()
    clock.compare(BEGAN, 10_001 + ahead_s)
    slurms_s = 10_000.0 + clock.ahead_s
    paused = running(slurms_s - 30, 7, slurm_state="SUSPENDED")
    jobs = (running(slurms_s - 30, squeue_says_s), paused, pending("9"))
    seen = clock.applied(Observation(10_000.0, jobs, (), ()))
    assert seen.at_s == slurms_s and ended
    assert [job.elapsed_s for job in seen.jobs] == [pytest.approx(30, abs=1), 7, 0]
    assert seen.jobs[0].state is JobState.RUNNING


def test_readings_are_repeated_while_the_clock_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often the clock steps, the recursion does not get deeper."""
    readings: list[float] = []
    driver = CommandSlurm()

    def read(at_s: float) -> tuple[Observation, float]:
        readings.append(at_s)
        return Observation(at_s, (), (), ()), at_s

    monkeypatch.setattr(driver, "_read", read)
    monkeypatch.setattr(SlurmClock, "compare", lambda *_: len(readings) == 3)
    assert driver.observe().at_s == readings[-1]
    assert len(readings) == 3
    monkeypatch.setattr(SlurmClock, "compare", lambda *_: False)
    readings.clear()
    with pytest.raises(SlurmAnswerError, match="clock was set during each of 5 readings"):
        driver.observe()
    assert len(readings) == 5
