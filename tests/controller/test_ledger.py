"""The ledger file: of another version, damaged, on a full disk, or read-only."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from slurm_tiresias.config import parse
from slurm_tiresias.controller import run
from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.errors import ConfigError, DamagedLedgerError, LedgerError
from slurm_tiresias.model import JobAccount
from slurm_tiresias.slurm.commands import CommandSlurm
from slurm_tiresias.slurm.protocol import Cluster
from slurm_tiresias.store.ledger import FILE_NAME, Ledger, check_cluster, put_in_place
from tests.cli.running import Site, error_of
from tests.controller.test_job_store import pending, running, see


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / FILE_NAME


@pytest.fixture
def written(path: Path) -> Path:
    """A ledger of many jobs, closed."""
    with closing(Ledger(path)) as ledger, ledger.transaction():
        ledger.jobs.put(JobAccount(str(n), 0, 1.0, 1.0, 1.0, n) for n in range(2000))
    return path


# Of other versions


@pytest.mark.parametrize("version", ["0", "2", "16", "new"])
def test_a_ledger_of_another_version_is_refused_and_left_alone(written: Path, version: str) -> None:
    with closing(Ledger(written)) as ledger:
        ledger.set_value("schema_version", version)
    before = written.read_bytes()
    message = rf"{written} is of another version \(schema {version}, not 1\).*ledger rebuild"
    for opened in (Ledger, Ledger.to_read):
        with pytest.raises(LedgerError, match=message):
            opened(written)
    assert written.read_bytes() == before


def test_a_ledger_with_the_tables_of_another_version_is_not_taken_for_damaged(path: Path) -> None:
    with closing(Ledger(path)) as ledger:
        ledger.set_value("schema_version", "16")
    with closing(sqlite3.connect(path)) as database:
        database.execute("ALTER TABLE runs RENAME TO attempts")
    with pytest.raises(LedgerError, match="another version"):
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
        database.execute("DROP TABLE runs")


def a_column_lost(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("ALTER TABLE jobs DROP COLUMN tier")


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


def test_a_controller_on_a_damaged_ledger_ends_with_one_line_and_code(tmp_path: Path) -> None:
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


def test_a_controller_on_a_sealed_ledger_ends_with_one_line(sealed: Path, tmp_path: Path) -> None:
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
        assert JobStore(ledger, parse({}), accounting=False).accounts.all == job_store.accounts.all


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


def test_a_replaced_ledger_is_kept_and_its_data_is_not_taken_over(written: Path) -> None:
    unmerged = b"what was not yet in the file itself"
    written.with_name(f"{FILE_NAME}-wal").write_bytes(unmerged)
    before = written.read_bytes()
    draft = written.with_name("draft")
    with closing(Ledger(draft)) as ledger, ledger.transaction():
        ledger.jobs.put([JobAccount("1", 0, 1.0, 1.0, 1.0, 1)])
    aside = put_in_place(draft, written)
    assert aside is not None
    assert aside.read_bytes() == before
    assert aside.with_name(f"{aside.name}-wal").read_bytes() == unmerged
    with closing(Ledger(written)) as ledger:
        assert ledger.jobs.live().keys() == {"1"}


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
        ledger.jobs.put(JobAccount(key, 0, 1.0, 1.0, 1.0, 1) for key in keys)
        found = [task.key for task in ledger.jobs.tasks_of("12", at_most=3)]
    assert found == ["12_1", "12_2", "12_10"]


# Bound to one cluster


def test_a_ledger_without_a_name_is_bound_to_the_cluster_that_first_uses_it(path: Path) -> None:
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
