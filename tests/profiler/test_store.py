"""The profile store."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_tiresias.profiler import store as store_module
from slurm_tiresias.profiler.gpu_runs import GpuRun, NodeGpus
from slurm_tiresias.profiler.profile import (
    BUILT_IN,
    COLLECTIVES,
    FILE,
    JOB,
    MODEL,
    OPERATOR,
    TRAFFIC,
    Key,
    Profile,
    built_in,
    find,
    is_sound,
    key_of,
)
from slurm_tiresias.profiler.run_id import RunId
from slurm_tiresias.profiler.skew import Skew
from slurm_tiresias.profiler.speeds import RunTraffic
from slurm_tiresias.profiler.store import FILE_NAME, NodeRun, ProfileStore, ProfileStoreError

SKEW = Skew(400, 500, 5)
KEY = Key(JOB, "train", "ann")
HOSTILE = [
    "'; DROP TABLE profiles; --",
    'a"b',
    "new\nline",
    "\x1b[31mred",
    "nul\0nul",
    "\ud800half",
    "x" * 65536,
    "%s{0}$(reboot)",
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProfileStore]:
    with closing(ProfileStore(tmp_path / FILE_NAME)) as opened:
        yield opened


def node_run(job_id: int, node: str = "n1", sent_bytes: int = 1000, **changes: object) -> NodeRun:
    run = RunTraffic(KEY, TRAFFIC, SKEW, sent_bytes, gpus=4, nodes=1, elapsed_s=100.0)
    return NodeRun(RunId(job_id, 0, node), replace(run, **changes))  # type: ignore[arg-type]


def test_saved_profiles_are_visible_to_another_process(store: ProfileStore, tmp_path: Path) -> None:
    profile = Profile(Key(MODEL, "bert"), SKEW, FILE, 123.5)
    store.save([profile])
    with closing(ProfileStore(tmp_path / FILE_NAME)) as other:
        assert other.profiles() == [profile]


def test_another_process_that_writes_is_noticed(store: ProfileStore, tmp_path: Path) -> None:
    before = store.version()
    with closing(ProfileStore(tmp_path / FILE_NAME)) as other:
        other.save([Profile(Key(MODEL, "bert"), SKEW, OPERATOR)])
    assert store.version() != before


@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_is_stored_and_read_without_interpretation(store: ProfileStore, name: str) -> None:
    key = key_of(JOB, name, name)
    store.save([Profile(key, SKEW, TRAFFIC)])
    store.add(replace(node_run(1), run=replace(node_run(1).run, key=key)), 5.0)
    assert [profile.key for profile in store.profiles()] == [key]
    assert store.forget([key]) == 1
    assert not store.profiles()
    assert not store.runs()


def test_a_run_sums_its_nodes_and_takes_its_skew_from_the_busiest(store: ProfileStore) -> None:
    store.add(node_run(7, "n1", 1000), 1.0)
    store.add(node_run(7, "n2", 3000, skew=Skew(300, 400, 2)), 2.0)
    [run] = store.runs()
    assert (run.nodes, run.sent_bytes, run.gpus) == (2, 4000, 4)
    assert run.skew == Skew(300, 400, 2)
    [profile] = store.profiles()
    assert (profile.skew, profile.source) == (Skew(300, 400, 2), TRAFFIC)


def test_forged_numbers_do_not_keep_the_others_from_being_read(store: ProfileStore) -> None:
    for number in range(9):
        store.add(node_run(7, f"n{number}", 1 << 62), 1.0)
    store.add(node_run(8), 2.0)
    assert [run.nodes for run in store.runs()] == [9, 1]


def test_a_file_that_is_read_twice_counts_once(store: ProfileStore) -> None:
    store.add(node_run(7), 1.0)
    store.add(node_run(7), 2.0)
    assert [run.nodes for run in store.runs()] == [1]


def test_a_programs_profile_comes_from_its_latest_run(store: ProfileStore) -> None:
    store.add(node_run(7), 1.0)
    store.add(node_run(9, skew=Skew(10, 100, 12), source=COLLECTIVES), 2.0)
    [profile] = store.profiles()
    assert (profile.skew.ratio, profile.source) == (0.1, COLLECTIVES)


def test_an_operators_profile_is_not_overwritten_by_measurements(store: ProfileStore) -> None:
    store.save([Profile(KEY, Skew(1, 2, 2), OPERATOR)])
    store.add(node_run(7), 1.0)
    assert store.profiles()[0].source == OPERATOR


def test_the_store_stays_bounded(store: ProfileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "RUNS_KEPT", 3)
    monkeypatch.setattr(store_module, "MEASURED_KEPT_OF_A_USER", 2)
    for job_id in range(1, 8):
        store.add(node_run(job_id), job_id)
    assert len(store.runs()) == 3
    for number in range(5):
        store.add(node_run(100 + number, key=Key(JOB, f"run{number}", "ann")), 100 + number)
    assert {profile.key.name for profile in store.profiles()} == {"run3", "run4"}


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"no database at all" * 100)
    with pytest.raises(ProfileStoreError, match="cannot be used"):
        ProfileStore(tmp_path / FILE_NAME)


def test_without_a_file_the_store_is_in_memory() -> None:
    with closing(ProfileStore(None)) as store:
        store.add(node_run(7), 1.0)
        assert [profile.key for profile in store.profiles()] == [KEY]


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    for writable in (True, False):
        with pytest.raises(ProfileStoreError, match="cannot be used"):
            ProfileStore(tmp_path / "nowhere" / FILE_NAME, writable=writable)


@pytest.mark.parametrize("while_in_use", [True, False])
def test_a_store_on_a_read_only_file_system_can_be_read(tmp_path: Path, while_in_use: bool) -> None:
    writer = ProfileStore(tmp_path / FILE_NAME)
    writer.save([Profile(KEY, SKEW, TRAFFIC)])
    if not while_in_use:
        writer.close()
    tmp_path.chmod(0o555)
    try:
        with closing(ProfileStore(tmp_path / FILE_NAME, writable=False)) as reader:
            assert len(reader.profiles()) == 1
    finally:
        tmp_path.chmod(0o755)
        writer.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_store_created_by_root_belongs_to_the_controllers_user(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12345)
    with closing(ProfileStore(tmp_path / FILE_NAME)) as store:
        store.save([Profile(KEY, SKEW, TRAFFIC)])
        assert {path.stat().st_uid for path in tmp_path.iterdir()} == {12345}


@pytest.mark.parametrize(
    "skew", [Skew(0, 5, 1), Skew(-1, 5, 1), Skew(6, 5, 1), Skew(5, 1 << 63, 1), Skew(5, 5, 0)]
)
def test_impossible_numbers_are_invalid(skew: Skew) -> None:
    assert is_sound(Profile(KEY, SKEW, TRAFFIC, 1.0))
    assert not is_sound(Profile(KEY, skew, TRAFFIC, 1.0))


def test_impossible_keys_and_times_are_invalid() -> None:
    for wrong in (
        Profile(KEY, SKEW, "rumour", 1.0),
        Profile(KEY, SKEW, TRAFFIC, float("nan")),
        Profile(Key("shape", "x"), SKEW, TRAFFIC, 1.0),
        Profile(Key(MODEL, ""), SKEW, TRAFFIC, 1.0),
    ):
        assert not is_sound(wrong)


def test_a_named_model_is_looked_up_before_the_jobs_own_name() -> None:
    own = Profile(KEY, SKEW, TRAFFIC)
    profiles = {**built_in(), KEY: own}
    found = find(profiles, "ann", "VGG-16", "train")
    assert found is not None
    assert (found.key.name, found.source) == ("vgg16", BUILT_IN)
    assert find(profiles, "ann", "", "train") == own
    assert find(profiles, "bob", "", "train") is None
    assert find(profiles, "ann", "unheard-of", "train") is None


def test_an_operators_profile_takes_precedence_over_a_built_in_one() -> None:
    noted = Profile(Key(MODEL, "vgg16"), SKEW, OPERATOR)
    assert find({**built_in(), noted.key: noted}, "ann", "vgg16", "") == noted


def test_a_measured_profile_does_not_apply_to_another_users_jobs() -> None:
    measured = Profile(Key(MODEL, "bert", "eve"), SKEW, TRAFFIC)
    assert find({measured.key: measured}, "eve", "bert", "") == measured
    assert find({measured.key: measured}, "ann", "bert", "") is None


# GPU use of runs


def gpus_of(job_id: int, node: str = "n1", key: Key = KEY) -> NodeGpus:
    measured = GpuRun("GPU-1", 3, 20.0, "00000000:3B:00.0", "H200", 0.5, 6, 8, 10, 11, 12, None)
    return NodeGpus(RunId(job_id, 0, node), key, (measured, GpuRun("GPU-2", 1, 0.0)))


def test_gpu_use_of_runs_is_found_by_name_oldest_first(store: ProfileStore) -> None:
    mine = [gpus_of(7), gpus_of(7, "n2"), gpus_of(10)]
    named = gpus_of(9, key=Key(MODEL, "train", "bob"))
    for seen in (mine[2], named, gpus_of(8, key=Key(JOB, "other", "ann")), mine[1], mine[0]):
        store.add_gpus(seen, 5.0)
    assert store.gpu_runs("train") == [named, *mine]
    assert store.gpu_runs("unheard-of") == []


def test_gpu_use_read_twice_counts_once(store: ProfileStore) -> None:
    for _ in range(2):
        store.add_gpus(gpus_of(7), 5.0)
    assert store.gpu_runs("train") == [gpus_of(7)]


@pytest.mark.parametrize("with_profile", [True, False])
def test_forgetting_a_profile_deletes_its_gpu_use(store: ProfileStore, with_profile: bool) -> None:
    if with_profile:
        store.add(node_run(7), 1.0)
    store.add_gpus(gpus_of(7), 5.0)
    store.add_gpus(gpus_of(8, key=Key(JOB, "train", "bob")), 5.0)
    assert store.forget([KEY, Key(JOB, "nobody's")]) == 1
    assert [seen.key.user for seen in store.gpu_runs("train")] == ["bob"]


def test_stored_gpu_use_is_bounded(store: ProfileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "RUNS_KEPT", 3)
    monkeypatch.setattr(store_module, "MEASURED_KEPT_OF_A_USER", 2)
    for job_id in range(1, 8):
        store.add_gpus(gpus_of(job_id), job_id)
    assert [seen.run_id.job_id for seen in store.gpu_runs("train")] == [5, 6, 7]
    for number in range(3):
        store.add_gpus(gpus_of(100 + number, key=Key(JOB, f"run{number}", "ann")), 100 + number)
    store.add_gpus(gpus_of(200, key=Key(JOB, "run", "bob")), 1.0)
    kept = [name for name in ("train", "run0", "run1", "run2", "run") if store.gpu_runs(name)]
    assert kept == ["run1", "run2", "run"]


def test_a_store_of_another_version_is_refused(tmp_path: Path) -> None:
    ProfileStore(tmp_path / FILE_NAME).close()
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as database:
        database.execute("PRAGMA user_version = 3")
    with pytest.raises(ProfileStoreError, match="another version wrote it"):
        ProfileStore(tmp_path / FILE_NAME)
