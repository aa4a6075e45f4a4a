"""Events that one user causes at will do not displace those of other users."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.store.event_folding import AT_WILL, MOST_AT_ONCE, ONE_MORE_AFTER_S
from slurm_tiresias.store.ledger import FILE_NAME, Ledger
from slurm_tiresias.store.records import EventRecord
from tests.controller.test_job_store import CONFIG, pending, see
from tests.report.pictures import job, remember


@pytest.fixture
def job_store(ledger: Ledger) -> JobStore:
    """A ledger with an array of 240 tasks of alice, and a job of bob."""
    job_store = JobStore(ledger, CONFIG, accounting=False)
    tasks = [pending(f"12_{task}", raw_id=1000 + task, user="alice") for task in range(240)]
    see(job_store, 1000, *tasks, pending("7", raw_id=7, user="bob"))
    return job_store


def at(job_store: JobStore, now_s: float) -> None:
    job_store.follow_clock(now_s, now_s)
    job_store.commit()


@pytest.mark.parametrize("kind", sorted(AT_WILL))
def test_an_arrays_first_events_of_a_cycle_are_kept_with_a_count_of_the_rest(
    job_store: JobStore, ledger: Ledger, kind: str
) -> None:
    job_store.events.note(1000, kind, "7", "bob's")
    for task in range(240):
        job_store.events.note(1000, kind, f"12_{task}", "alice's")
    at(job_store, 1000)
    events = ledger.events.last(300)
    assert Counter(event.text for event in events) == {
        "bob's": 1,
        "alice's": MOST_AT_ONCE - 1,
        f"the same happened to this user's jobs {240 - MOST_AT_ONCE + 1:,} more times": 1,
    }
    assert events[-1].job_id == "12_239"
    assert job_store.take_stats().events == {kind: 241}, "every one is counted"


def test_a_user_has_one_event_of_a_kind_a_minute(job_store: JobStore, ledger: Ledger) -> None:
    day_s = 86_400
    for now_s in range(1000, 1000 + day_s, 60):
        for task in range(5):
            job_store.events.note(now_s, "repaired", f"12_{task}", "alice's")
        at(job_store, now_s)
    events = ledger.events.last(200_000)
    assert len(events) <= MOST_AT_ONCE + day_s / ONE_MORE_AFTER_S
    told = sum(1 if e.text == "alice's" else int(e.text.split()[-3]) for e in events)
    assert told >= 5 * day_s / 60 - 5, "none is lost"


def test_folded_events_are_counted_once_they_stop(job_store: JobStore, ledger: Ledger) -> None:
    for now_s in (1000, 1001):
        for task in range(100):
            job_store.events.note(now_s, "failed", f"12_{task}", "alice's")
        at(job_store, now_s)
    assert len(ledger.events.last(300)) == MOST_AT_ONCE
    at(job_store, 1001 + ONE_MORE_AFTER_S)
    assert (
        ledger.events.last(300)[-1].text == "the same happened to this user's jobs 100 more times"
    )
    at(job_store, 5000)
    assert len(ledger.events.last(300)) == MOST_AT_ONCE + 1


def test_a_clock_set_back_does_not_reset_the_limit(job_store: JobStore, ledger: Ledger) -> None:
    for now_s in (90_000, 1000, 90_000, 1000):
        for task in range(100):
            job_store.events.note(now_s, "repaired", f"12_{task}", "alice's")
    at(job_store, 1000)
    assert len(ledger.events.last(300)) <= 2 * MOST_AT_ONCE


@pytest.mark.parametrize("kind", ["preempted", "promoted", "handed-back", "would", "demoted"])
def test_events_that_reports_count_are_kept(job_store: JobStore, ledger: Ledger, kind: str) -> None:
    for task in range(100):
        job_store.events.note(1000, kind, f"12_{task}", "")
    at(job_store, 1000)
    assert len(ledger.events.last(300)) == 100


def test_the_last_events_are_shared_by_all_users_who_have_any(tmp_path: Path) -> None:
    remember(
        tmp_path / FILE_NAME,
        [job("1", "#", user="alice"), job("2", "#", user="bob"), job("3", "#", user="carol")],
    )
    with closing(Ledger(tmp_path / FILE_NAME)) as ledger:
        for key, number in (("2", 5), ("3", 40), ("1", 100)):
            ledger.events.put(EventRecord(float(n), "demoted", key, "", "") for n in range(number))
        few = Counter(event.job_id for event in ledger.events.last(30))
        many = ledger.events.last(1000)
    assert few == {"2": 5, "3": 12, "1": 13}
    assert [event.job_id for event in many] == ["2"] * 5 + ["3"] * 40 + ["1"] * 100
