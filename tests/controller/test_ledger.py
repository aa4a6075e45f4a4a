"""The ledger file: of an older version, damaged, on a full disk, or read-only."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_tiresias.config import parse
from slurm_tiresias.controller import run
from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.core.lifecycle.nomination import Nomination, NominationState
from slurm_tiresias.core.lifecycle.preemption import Cause, Preemption, PreemptionState
from slurm_tiresias.errors import ConfigError, DamagedLedgerError, LedgerError
from slurm_tiresias.model import Amount, JobAccount
from slurm_tiresias.slurm.commands import CommandSlurm
from slurm_tiresias.slurm.protocol import Cluster
from slurm_tiresias.store.ledger import FILE_NAME, Ledger, check_cluster, put_in_place
from slurm_tiresias.store.records import (
    DrilledProgram,
    PreemptionCost,
    PreemptionRecord,
    RunProgressRecord,
)
from slurm_tiresias.store.schema import SCHEMA_VERSION
from tests.cli.running import Site, error_of
from tests.controller.old_schema import back_to_schema_9, back_to_schema_10, back_to_schema_13
from tests.controller.test_job_store import kept_preemptions, pending, running, see

SCHEMA_1 = Path(__file__).with_name("ledger-schema-1.sql")
"""A ledger that version 0.1 wrote before it had users and names, in the middle of a preemption."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / FILE_NAME


@pytest.fixture
def written(path: Path) -> Path:
    """A ledger of many jobs, closed."""
    with closing(Ledger(path)) as ledger, ledger.transaction():
        ledger.save_jobs(JobAccount(str(n), 0, 1.0, 1.0, 1.0, n) for n in range(2000))
    return path


def old_ledger(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.executescript(SCHEMA_1.read_text())


def rows(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as database:
        return list(database.iterdump())


# Of other versions


def test_a_ledger_of_an_older_version_is_migrated_with_all_data(path: Path) -> None:
    old_ledger(path)
    with closing(Ledger(path)) as ledger:
        jobs = ledger.jobs()
        assert ledger.value("schema_version") == str(SCHEMA_VERSION)
        assert ledger.value("paused") == "no"
        assert [event.kind for event in ledger.last_events(9)] == ["demoted", "preempted"]
        assert sum(i.attained_gpu_s for i in ledger.runs_of("7")) == 184
        assert ledger.preemptions_under_way() == [Preemption("7", PreemptionState.REQUEUED, "8")]
        (nomination,) = ledger.nominations()
    assert (jobs["7"].tier, jobs["7"].preempted_by) == (1, "8")
    assert nomination.state is NominationState.PENDING
    assert nomination.allocated() == {"n1": Amount({"": 4}, 4)}
    assert (jobs["8"].written_nodes, jobs["8"].own_nodes) == ("n1", "n[1-2]")
    assert {(job.user, job.name, job.partition) for job in jobs.values()} == {("", "", "")}


@pytest.mark.parametrize(
    ("columns", "wanted"),
    [
        (
            {"claimed_s": 5.0, "claim_free_s": 6.0},
            Nomination("7", NominationState.FREE, 5.0, 6.0),
        ),
        (
            {"gave_up_s": 4.0, "gave_up_on": "abc", "times_given_up": 2},
            Nomination("7", NominationState.EXPIRED, None, None, "", 4.0, "abc", 2),
        ),
        ({"vacating_for": "8"}, Preemption("7", PreemptionState.PLANNED, "8")),
        (
            {"vacating_for": "8", "vacating_since_s": 3.0},
            Preemption("7", PreemptionState.SIGNALLED, "8", 3.0),
        ),
        (
            {"vacating_for": "8", "vacating_since_s": 3.0, "requeue_sent_s": 4.0},
            Preemption("7", PreemptionState.REQUEUE_SENT, "8", 3.0, 4.0),
        ),
    ],
    ids=lambda value: value.state.value if isinstance(value, (Nomination, Preemption)) else "",
)
def test_starts_and_preemptions_under_way_are_migrated_with_their_state(
    path: Path, columns: dict[str, object], wanted: Nomination | Preemption
) -> None:
    old_ledger(path)
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE jobs SET settling = 0 WHERE key = '7'")
        database.execute("DELETE FROM jobs WHERE key = '8'")
        for column, value in columns.items():
            database.execute(f"UPDATE jobs SET {column} = ? WHERE key = '7'", (value,))
        database.commit()
    with closing(Ledger(path)) as ledger:
        assert [*ledger.nominations(), *ledger.preemptions_under_way()] == [wanted]


def test_preemptions_stored_as_events_by_older_versions_are_migrated(path: Path) -> None:
    old_ledger(path)
    with closing(sqlite3.connect(path)) as database:
        statement = "INSERT INTO events VALUES (?, ?, 'preempted', '7', '9', '')"
        database.executemany(statement, [(3, 900.0), (4, 1003.0)])
        database.execute("UPDATE facts SET value = '3' WHERE name = 'schema_version'")
        for column in ("user", "name", "account"):
            database.execute(f"ALTER TABLE jobs ADD COLUMN {column} TEXT DEFAULT ''")
        database.commit()
    Ledger(path).close()
    assert kept_preemptions(path) == [
        PreemptionRecord("7", "8", at_s=1060.0, run_start_s=1005.0),
        PreemptionRecord("7", "9", at_s=1003.0),
    ], "all but that of an earlier job of the same id, submitted before 1000"


def test_a_ledger_older_than_cost_measurement_keeps_the_reports_of_runs(path: Path) -> None:
    told = RunProgressRecord("7", 0, "reports", "running", 0, 37, 100, 45.0, 45.0)
    cost = PreemptionCost("7", 1005.0, 0, 1060.0, 1050.0, 4)
    with closing(Ledger(path)) as ledger, ledger.transaction():
        ledger.save_run_progress([told])
    with closing(sqlite3.connect(path)) as database:
        back_to_schema_9(database)
        database.commit()
    with closing(Ledger(path)) as ledger:
        assert ledger.progress_of("7") == [told]
        assert not ledger.awaited_costs() and not ledger.last_costs(10)
        ledger.save_costs([cost])
        assert ledger.awaited_costs() == ledger.costs_of("7") == [cost]
        ledger.forget(["7"])
        assert ledger.costs_of("7") == []


def test_a_ledger_older_than_drills_keeps_its_jobs_and_can_store_drills(path: Path) -> None:
    job = JobAccount("7", 0, 1.0, 1.0, 1.0, 0, user="ann", name="train")
    cost = PreemptionCost("7", 1005.0, 0, 1060.0, 1050.0, 4)
    with closing(Ledger(path)) as ledger, ledger.transaction():
        ledger.save_jobs([job])
        ledger.save_costs([cost])
    with closing(sqlite3.connect(path)) as database:
        back_to_schema_10(database)
        database.commit()
    drilled = [DrilledProgram("ann", "train", 2000.0), DrilledProgram("ann", "it's", 2001.0)]
    with closing(Ledger(path)) as ledger:
        assert (ledger.job("7"), ledger.costs_of("7")) == (job, [cost])
        assert ledger.drilled() == []
        ledger.save_drilled(drilled, ())
    (backup,) = path.parent.glob(f"{FILE_NAME}.schema-10-*")
    assert not any("CREATE TABLE drilled" in row for row in rows(backup))
    with closing(Ledger(path)) as ledger:
        assert ledger.drilled() == drilled
        ledger.save_drilled([replace(drilled[1], at_s=3000.0)], [("ann", "train")])
        assert ledger.drilled() == [replace(drilled[1], at_s=3000.0)]


def test_preemptions_of_a_ledger_of_schema_13_were_for_other_jobs(path: Path) -> None:
    job = JobAccount("7", 0, 1.0, 1.0, 1.0, 0)
    over, under_way = (
        PreemptionRecord("7", "8", 1060.0),
        Preemption("7", PreemptionState.PLANNED, "8"),
    )
    with closing(Ledger(path)) as ledger, ledger.transaction():
        ledger.save_jobs([job])
        ledger.add_preemptions([over])
        ledger.save_preemptions_under_way({"7": under_way})
    with closing(sqlite3.connect(path)) as database:
        back_to_schema_13(database)
        database.commit()
    for_idle_gpus = replace(under_way, preemptor="", cause=Cause.IDLE_GPUS)
    told = replace(job, idle_requeues=2, idle_signalled_run=0)
    with closing(Ledger(path)) as ledger, ledger.transaction():
        assert (ledger.job("7"), ledger.preemptions_under_way()) == (job, [under_way])
        ledger.save_jobs([told])
        ledger.save_preemptions_under_way({"7": for_idle_gpus})
    with closing(Ledger(path)) as ledger:
        assert (ledger.job("7"), ledger.preemptions_under_way()) == (told, [for_idle_gpus])
    assert kept_preemptions(path) == [over]


def test_the_ledger_of_an_older_version_is_kept_beside_the_new_one(path: Path) -> None:
    old_ledger(path)
    before = rows(path)
    Ledger(path).close()
    (backup,) = path.parent.glob(f"{FILE_NAME}.schema-1-*")
    assert rows(backup) == before
    Ledger(path).close()
    assert len(list(path.parent.glob(f"{FILE_NAME}.schema-*"))) == 1


def test_a_ledger_is_not_migrated_if_there_is_no_room_for_a_copy(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_ledger(path)
    before = rows(path)
    real = sqlite3.connect

    def connect(where: object, *arguments: object, **options: object) -> sqlite3.Connection:
        database: sqlite3.Connection = real(where, *arguments, **options)  # type: ignore[call-overload]
        if "schema-1" in str(where):
            database.execute("PRAGMA max_page_count = 1")
        return database

    monkeypatch.setattr(sqlite3, "connect", connect)
    with pytest.raises(LedgerError, match="Make room"):
        Ledger(path)
    assert rows(path) == before
    assert not list(path.parent.glob(f"{FILE_NAME}.schema-*"))


def test_a_ledger_of_a_newer_version_is_refused(path: Path) -> None:
    with closing(Ledger(path)) as ledger:
        ledger.set_value("schema_version", "99")
    with pytest.raises(LedgerError, match="newer version"):
        Ledger(path)


# Damaged


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut_off(path: Path) -> None:
    os.truncate(path, path.stat().st_size * 2 // 3)


def cut_off_in_a_page(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2 + 100)


def overwritten(path: Path) -> None:
    path.write_text("not a database at all, but long enough to look like a page")


def a_page_of_noise(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(8 * 4096)
        file.write(os.urandom(4096))


def another_database(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE photos (name TEXT)")


def a_table_lost(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("DROP TABLE incarnations")


def a_column_lost(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("ALTER TABLE jobs DROP COLUMN tier")


def a_version_of_nonsense(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE facts SET value = 'new' WHERE name = 'schema_version'")
        database.commit()


def only_its_log(path: Path) -> None:
    path.with_name(f"{FILE_NAME}-wal").write_bytes(path.read_bytes())
    path.unlink()


DAMAGES = (
    empty,
    cut_off,
    cut_off_in_a_page,
    overwritten,
    a_page_of_noise,
    another_database,
    a_table_lost,
    a_column_lost,
    a_version_of_nonsense,
    only_its_log,
)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__.replace("_", " "))
def test_a_damaged_ledger_is_refused_with_the_command_that_rebuilds_it(
    written: Path, damage: Callable[[Path], None]
) -> None:
    damage(written)
    left = {file.name: file.read_bytes() for file in written.parent.iterdir()}
    with pytest.raises(DamagedLedgerError) as caught:
        Ledger(written)
    assert "tiresias-slurm ledger rebuild" in str(caught.value)
    assert "\n" not in str(caught.value)
    for name, content in left.items():
        assert (written.parent / name).read_bytes() == content


def test_a_controller_on_a_damaged_ledger_ends_with_one_line_and_its_own_exit_code(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path)
    overwritten(tmp_path / FILE_NAME)
    result = site.run("controller")
    assert result.exit_code == 11
    assert "tiresias-slurm ledger rebuild" in error_of(result)


# Unwritable


@pytest.fixture
def sealed(written: Path) -> Iterator[Path]:
    """A ledger that not even root may write or make writable."""
    if not _attribute("+i", written):
        pytest.skip("only root can seal a file, and not on every file system")
    yield written
    _attribute("-i", written)


def _attribute(change: str, path: Path) -> bool:
    chattr = ["chattr", change, str(path)]
    return subprocess.run(chattr, stderr=subprocess.DEVNULL, check=False).returncode == 0


def test_a_controller_on_a_ledger_that_it_cannot_write_ends_with_one_line(
    sealed: Path, tmp_path: Path
) -> None:
    result = Site(tmp_path).run("controller")
    assert result.exit_code == 8
    assert "cannot be used" in error_of(result)


def test_writes_refused_by_a_full_disk_are_made_once_there_is_space(path: Path) -> None:
    with closing(Ledger(path)) as ledger:
        database = ledger._database
        (pages,) = database.execute("PRAGMA page_count").fetchone()
        database.execute(f"PRAGMA max_page_count = {pages}")
        job_store = JobStore(ledger, parse({}), accounting=False)
        many = [pending(str(number), name="x" * 200) for number in range(1, 200)]
        with pytest.raises(LedgerError, match="full"):
            see(job_store, 1000, *many)
        with pytest.raises(LedgerError, match="full"):
            see(job_store, 1001, *many)
        database.execute("PRAGMA max_page_count = 100000")
        see(job_store, 1010, *many, running(1005, 5))
        assert JobStore(ledger, parse({}), accounting=False).records() == job_store.records()


def test_no_number_is_assigned_twice_even_after_a_failed_reservation(path: Path) -> None:
    with closing(Ledger(path)) as ledger:
        ledger._database.execute("PRAGMA query_only = 1")
        for _ in range(2):
            with pytest.raises(LedgerError):
                ledger.next_number()
        ledger._database.execute("PRAGMA query_only = 0")
        first = ledger.next_number()
    with closing(Ledger(path)) as ledger:
        assert ledger.next_number() > first


def test_a_replaced_ledger_is_kept_and_its_data_is_not_taken_over(
    written: Path,
) -> None:
    unmerged = b"what was not yet in the file itself"
    written.with_name(f"{FILE_NAME}-wal").write_bytes(unmerged)
    before = written.read_bytes()
    draft = written.with_name("draft")
    with closing(Ledger(draft)) as ledger, ledger.transaction():
        ledger.save_jobs([JobAccount("1", 0, 1.0, 1.0, 1.0, 1)])
    aside = put_in_place(draft, written)
    assert aside is not None
    assert aside.read_bytes() == before
    assert aside.with_name(f"{aside.name}-wal").read_bytes() == unmerged
    with closing(Ledger(written)) as ledger:
        assert ledger.jobs().keys() == {"1"}


def test_no_old_ledger_is_kept_if_there_was_none(path: Path) -> None:
    draft = path.with_name("draft")
    Ledger(draft).close()
    assert put_in_place(draft, path) is None
    Ledger(path).close()


# Queries


def test_the_first_tasks_of_an_array_are_those_of_the_lowest_numbers(path: Path) -> None:
    with closing(Ledger(path)) as ledger:
        keys = [f"12_{task}" for task in (100, 10, 2, 1, 11)]
        keys += ["12", "120_1", "1_2"]
        ledger.save_jobs(JobAccount(key, 0, 1.0, 1.0, 1.0, 1) for key in keys)
        found = [task.key for task in ledger.tasks_of("12", at_most=3)]
    assert found == ["12_1", "12_2", "12_10"]


# Bound to one cluster


def test_a_ledger_without_a_name_is_bound_to_the_cluster_that_first_uses_it(path: Path) -> None:
    old_ledger(path)
    with closing(Ledger(path)) as ledger:
        assert ledger.cluster is None
        ledger.bind("alpha")
        ledger.bind("alpha")
        assert ledger.cluster == "alpha"


def test_the_ledger_of_another_cluster_is_refused_in_one_line(path: Path) -> None:
    with closing(Ledger(path)) as ledger:
        ledger.bind("alpha")
        with pytest.raises(ConfigError, match="is of cluster alpha, and this is cluster beta") as e:
            ledger.bind("beta")
        assert "tiresias-slurm ledger adopt" in str(e.value) and "\n" not in str(e.value)
        assert ledger.cluster == "alpha"
        ledger.bind("beta", renamed=True)
        assert ledger.cluster == "beta"


def test_the_cluster_of_a_ledger_on_disk_is_detected(path: Path) -> None:
    check_cluster(path, "alpha")
    assert not path.exists()
    with closing(Ledger(path)) as ledger:
        ledger.bind("alpha")
    check_cluster(path, "alpha")
    with pytest.raises(ConfigError, match="is of cluster alpha"):
        check_cluster(path, "beta")


def test_a_controller_on_the_ledger_of_another_cluster_ends_before_its_first_cycle(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Ledger(path)) as ledger:
        ledger.bind("alpha")
    beta = Cluster("beta", (22, 5, 8), "priority/multifactor", False, 30.0, 120.0, 1000.0)
    monkeypatch.setattr(run, "_first_contact", lambda slurm, config: beta)
    monkeypatch.setattr(run, "Controller", None)
    site = Site(path.parent)
    result = site.run("controller")
    assert result.exit_code == 4
    assert "is of cluster alpha, and this is cluster beta" in error_of(result)
    monkeypatch.setattr(CommandSlurm, "cluster", lambda _: beta)
    adopted = site.run("ledger", "adopt")
    assert adopted.stdout == "The ledger is of cluster beta now, and was of cluster alpha.\n"
    check_cluster(path, "beta")
