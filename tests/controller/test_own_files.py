"""The controller's files: who may read them, and that other users cannot redirect them."""

from __future__ import annotations

import os
import stat
from contextlib import closing
from pathlib import Path

import pytest

from slurm_tiresias.atomic_write import write_atomically
from slurm_tiresias.config import parse
from slurm_tiresias.controller.offline import set_paused
from slurm_tiresias.errors import ConfigError
from slurm_tiresias.profiler import public_copy
from slurm_tiresias.profiler.profile import MODEL, TRAFFIC, Profile, key_of
from slurm_tiresias.profiler.public_copy import ProfilesCopy
from slurm_tiresias.profiler.skew import Skew
from slurm_tiresias.profiler.store import ProfileStore
from slurm_tiresias.settings import Config
from slurm_tiresias.status import published
from slurm_tiresias.store.ledger import FILE_NAME, Ledger
from slurm_tiresias.store.terms import inherited_ledger, take_from_others
from tests.cli.states import state

PROFILE = Profile(key_of(MODEL, "net"), Skew(1, 2, 2), TRAFFIC, 1.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Use a state directory in a process whose umask would leave its files open to all users."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o755)
    return tmp_path / "state"


@pytest.fixture(autouse=True)
def lax_umask() -> object:
    before = os.umask(0)
    yield
    os.umask(before)


def config_of(folder: Path) -> Config:
    return parse({"controller": {"state_dir": str(folder)}})


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


def test_the_ledger_and_its_sqlite_files_are_private(folder: Path) -> None:
    with closing(Ledger(folder / FILE_NAME)) as ledger:
        ledger.set_value("a", "b")
        assert modes(folder) == dict.fromkeys(
            (FILE_NAME, f"{FILE_NAME}-wal", f"{FILE_NAME}-shm"), 0o600
        )


def test_a_world_readable_ledger_is_made_private(folder: Path) -> None:
    with closing(Ledger(folder / FILE_NAME)) as ledger:
        ledger.set_value("a", "b")
    (folder / FILE_NAME).chmod(0o644)
    with closing(Ledger(folder / FILE_NAME)) as ledger:
        assert modes(folder)[FILE_NAME] == 0o600
        assert ledger.value("a") == "b"


def test_the_ledger_of_the_next_term_is_private_before_it_is_opened(folder: Path) -> None:
    Ledger(folder / FILE_NAME).close()
    inherited_ledger(folder, term=1)
    assert set(modes(folder).values()) == {0o600}


def test_the_profile_store_is_private(folder: Path) -> None:
    with closing(ProfileStore(folder / "profiles.sqlite")) as store:
        store.save([])
        assert set(modes(folder).values()) == {0o600}


def test_a_store_accessible_to_others_is_replaced_by_a_new_file(folder: Path) -> None:
    path = folder / "profiles.sqlite"
    with closing(ProfileStore(path)) as store:
        store.save([PROFILE])
    before = path.stat().st_ino
    take_from_others(path)
    assert path.stat().st_ino == before
    path.chmod(0o644)
    with path.open("rb"):  # otherwise its number may be given to the new file
        take_from_others(path)
        assert path.stat().st_ino != before
    with closing(ProfileStore(path)) as store:
        assert store.profiles() == [PROFILE]
    assert set(modes(folder).values()) == {0o600}


def test_a_copy_of_the_profiles_is_published_once_something_has_changed(folder: Path) -> None:
    published_copy = folder / public_copy.FILE_NAME
    copy = ProfilesCopy(folder / "profiles.sqlite", folder, private=False)
    copy.keep_up()
    assert not published_copy.exists(), "there is nothing to copy"
    with closing(ProfileStore(folder / "profiles.sqlite")) as store:
        store.save([PROFILE])
        kept_up(copy)
        not_before_s = copy._next_s
        assert modes(folder)[published_copy.name] == 0o644
        with closing(ProfileStore(published_copy, writable=False)) as copied:
            assert copied.profiles() == [PROFILE]
        first = published_copy.stat().st_mtime_ns
        kept_up(copy)
        assert published_copy.stat().st_mtime_ns == first, "nothing has changed"
        store.forget([PROFILE.key])
        copy._next_s = not_before_s
        copy.keep_up()
        assert copy._thread is None or not copy._thread.is_alive()
        assert published_copy.stat().st_mtime_ns == first, "it is too soon"
        kept_up(copy)
        with closing(ProfileStore(published_copy, writable=False)) as copied:
            assert copied.profiles() == []
    assert not list(folder.glob(".*"))


def kept_up(copy: ProfilesCopy) -> None:
    copy._next_s = 0.0
    copy.keep_up()
    if copy._thread:
        copy._thread.join()


def test_with_private_data_no_copy_of_the_profiles_is_published(folder: Path) -> None:
    (folder / public_copy.FILE_NAME).write_text("from before")
    with closing(ProfileStore(folder / "profiles.sqlite")):
        kept_up(ProfilesCopy(folder / "profiles.sqlite", folder, private=True))
    assert public_copy.FILE_NAME not in modes(folder)


@pytest.mark.parametrize(("private", "mode"), [(False, 0o644), (True, 0o600)])
def test_the_published_state_is_private_if_jobs_are(folder: Path, private: bool, mode: int) -> None:
    published.write(state(), folder, private=private)
    assert modes(folder) == {published.FILE_NAME: mode}


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_a_state_directory_writable_by_others_is_refused(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    with pytest.raises(ConfigError, match="Other users may write"):
        set_paused(config_of(folder), True)
    assert modes(folder) == {}


@pytest.mark.parametrize("name", ["lock", published.FILE_NAME, f".{published.FILE_NAME}.new"])
def test_a_symlink_in_place_of_a_file_is_not_followed(folder: Path, name: str) -> None:
    target = folder.parent / "target"
    target.write_text("precious")
    (folder / name).symlink_to(target)
    if name == "lock":
        with pytest.raises(ConfigError, match="cannot be used"):
            set_paused(config_of(folder), True)
    else:
        write_atomically(folder / published.FILE_NAME, b"state", 0o644)
        assert not (folder / published.FILE_NAME).is_symlink()
    assert target.read_text() == "precious"
