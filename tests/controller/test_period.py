"""Who may see which jobs of a period over the controller's socket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from slurm_tiresias.errors import NotRunningError
from slurm_tiresias.status.ask import answer_of
from slurm_tiresias.status.report_query import Period, query_report, report_service
from slurm_tiresias.status.server import serving
from slurm_tiresias.status.service import Service
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.period import PERIOD, period
from slurm_tiresias.store.records import EventRecord
from tests import other_user
from tests.other_user import as_root, folder_for_all
from tests.report.pictures import cost, job, period_of, preempted, remember


@pytest.fixture
def folder() -> Iterator[Path]:
    """A state directory that other users may read, with a ledger that they may not."""
    with folder_for_all() as path:
        remember(
            path / "ledger.sqlite",
            [
                job("1", "####...##|", user="nobody", name="secret of nobody"),
                job("2", "   .##|", user="alice", name="secret of alice"),
                job("3", " ##...#|", user="bob", name="secret of bob"),
                job("4", "    .##|", user="", name="secret of eve"),
            ],
            [preempted("1", "2", 4.1, 0), preempted("3", "4", 3.1, 1)],
        )
        with closing(Ledger(path / "ledger.sqlite")) as ledger, ledger.transaction():
            ledger.events.put([EventRecord(9.0, "demoted", key, "", "") for key in "1234"])
        yield path


def asked_by_nobody(folder: Path) -> str:
    imports = "from slurm_tiresias.status.report_query import query_report"
    return other_user.asked_by_nobody(
        imports, "query_report(Path(sys.argv[1]), 0.0, 2000.0)", folder
    )


def reports(folder: Path, *, private: bool = False) -> dict[str, Service]:
    return {"report": report_service(folder / "ledger.sqlite", private=private)}


def rows_of(period: Period) -> tuple[object, ...]:
    return period.jobs, period.runs, period.preemptions, period.events


def test_the_socket_returns_the_same_as_the_ledger(folder: Path) -> None:
    from_ledger = query_report(folder, 0.0, 2000.0)
    assert not from_ledger.live and len(from_ledger.jobs) == 4
    assert len(from_ledger.preemptions) == 2 and from_ledger.events == {"demoted": 4}
    with serving(folder, reports(folder)):
        asked = query_report(folder, 0.0, 2000.0)
    assert asked.live and rows_of(asked) == rows_of(from_ledger)


def test_a_report_query_returns_only_the_requested_period(folder: Path) -> None:
    with serving(folder, reports(folder)):
        period = query_report(folder, 750.0, 2000.0)
    assert [row[0] for row in period.jobs] == ["1"], "the others have ended before"
    assert not period.preemptions and not period.events


@as_root
def test_private_data_limits_each_user_to_own_jobs(folder: Path) -> None:
    with serving(folder, reports(folder, private=True)):
        told = asked_by_nobody(folder)
        assert "only_of='nobody'" in told and "secret of nobody" in told
        for other in ("alice", "bob", "of eve"):
            assert other not in told
        assert "'1', '2'" in told, "for which job it made room"
        assert "'3', '4'" not in told
        assert "'demoted': 1" in told
        everything = query_report(folder, 0.0, 2000.0)
        assert everything.only_of == "" and len(everything.jobs) == 4, "root sees them all"


def test_a_user_sees_only_the_own_side_of_a_preemption(tmp_path: Path) -> None:
    """A preemption by job 1 of alice and job 2 of bob, whose tiers, GPUs and times all differ."""
    long = job("1", "####....###|", gpus=4, user="alice")
    short = job("2", "   .###|", gpus=2, user="bob")
    told = preempted("1", "2", 4.0, 0, signalled=3.5, tier=1, for_tier=0)
    parts: dict[str, Any] = {
        "save_s": 1.0,
        "leave_s": 2.0,
        "again_s": 3.0,
        "restart_s": 4.0,
        "answered_s": 5.0,
    }
    costs = [cost("1", 0, 4.0, gpus=4, lost_all=True, **parts)]
    remember(tmp_path / "ledger.sqlite", [long, short], [told], costs)
    everything, of_alice, of_bob = (
        dict(
            zip(
                PERIOD["preemptions"],
                period_of(tmp_path / "ledger.sqlite", 0, 20, user).preemptions[0],
                strict=True,
            )
        )
        for user in (None, "alice", "bob")
    )
    ids = {"job_id": "1", "for_job": "2", "at_s": 400.0, "for_itself": 0, "hung": 0}
    victims: dict[str, object] = {
        "signalled_s": 350.0,
        "tier": 1,
        "gpus": 4,
        "start_s": 0.0,
        "left_s": 400.0,
        "false_verdicts": 0,
    }
    victims |= {"again_s": 800.0, "ended_s": 1100.0, "cost_source": "reports"}
    victims |= {"lost_save_s": 1.0, "lost_leave_s": 2.0, "lost_again_s": 3.0}
    victims |= {"lost_restart_s": 4.0, "answered_s": 5.0, "lost_all": 1}
    preemptors = {"for_tier": 0, "for_gpus": 2, "for_start_s": 400.0, "for_end_s": 700.0}
    assert everything == ids | victims | preemptors
    assert of_alice == ids | victims | dict.fromkeys(preemptors)
    assert of_bob == ids | dict.fromkeys(victims) | preemptors


def test_a_uid_unknown_to_this_host_has_no_jobs(folder: Path) -> None:
    with closing(Ledger.to_read(folder / "ledger.sqlite")) as ledger:
        assert b"secret" not in period(ledger, 0.0, 2000.0, "")


def test_an_invalid_time_is_answered_with_an_error_and_harms_nothing(folder: Path) -> None:
    with serving(folder, reports(folder)):
        for asked in ("1; DROP TABLE jobs 2", "\xff", "1", "a b", "nan inf", ""):
            assert b"secret" not in answer_of(folder, f"report {asked}")
        assert len(query_report(folder, 0.0, 2000.0).jobs) == 4


def test_a_ledger_of_another_version_is_not_misread(folder: Path) -> None:
    with closing(Ledger(folder / "ledger.sqlite")) as ledger:
        ledger.set_value("schema_version", "3")
    with pytest.raises(NotRunningError, match="No controller answers"):
        query_report(folder, 0.0, 2000.0)
