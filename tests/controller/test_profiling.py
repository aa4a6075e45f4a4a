"""Learning from ended jobs, and placing later jobs accordingly."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from scripts.testbed.models import NAMES, tensor_sizes
from scripts.testbed.traffic_files import rounds_of, traffic_file
from slurm_tiresias.config import parse
from slurm_tiresias.controller.feed import Feed
from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.model import JobState, JobStatus, PlacementStyle
from slurm_tiresias.profiler import collect_folder, profile_index
from slurm_tiresias.profiler.collect_folder import ASIDE
from slurm_tiresias.profiler.gpu_runs import GpuRun, NodeGpus, file_text
from slurm_tiresias.profiler.profile import JOB, MODEL, Key, Profile
from slurm_tiresias.profiler.profile_index import FILE_NAME as KNOWN
from slurm_tiresias.profiler.profile_index import text_of
from slurm_tiresias.profiler.run_id import RunId
from slurm_tiresias.profiler.service import Profiler
from slurm_tiresias.profiler.skew import Skew
from slurm_tiresias.profiler.store import FILE_NAME, ProfileStore
from slurm_tiresias.settings import Config
from slurm_tiresias.slurm.protocol import Observation
from slurm_tiresias.store.ledger import FILE_NAME as LEDGER_NAME
from slurm_tiresias.store.ledger import Ledger
from tests.controller.fed import fed
from tests.controller.test_job_store import ended, pending, running, see

CONSOLIDATE, SPREAD = PlacementStyle.CONSOLIDATE, PlacementStyle.SPREAD


@pytest.fixture
def collect_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "collected"
    folder.mkdir()
    return folder


@pytest.fixture
def config(collect_dir: Path) -> Config:
    return parse({"profiler": {"collect_dir": str(collect_dir)}})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProfileStore]:
    with closing(ProfileStore(tmp_path / FILE_NAME)) as opened:
        yield opened


@pytest.fixture
def profiler(store: ProfileStore, config: Config) -> Profiler:
    return Profiler(store, config)


def learn(profiler: Profiler, *jobs: JobStatus, ran_s: float = 100.0) -> None:
    profiler.learn(Observation(5000.0, jobs, (), ()), lambda _key, _restarts: ran_s)


def leave(folder: Path, name: str, model: str, rounds: int = 50) -> Path:
    """The file of a node for a job that sent this model's tensors this many times."""
    path = folder / f"{name}.traffic"
    path.write_bytes(traffic_file(rounds_of(list(tensor_sizes(model)), rounds)))
    return path


OVER = ended(1000.0, 100.0)


def test_placement_follows_the_named_model_and_shows_its_number(profiler: Profiler) -> None:
    vgg = profiler.placing(pending(admin_comment="tiresias:model=vgg16").spec)
    assert vgg.style is CONSOLIDATE
    assert vgg.because == "largest tensor 74 % of vgg16 (built in), limit 50 %"
    resnet = profiler.placing(pending(comment="tiresias:model=ResNet-50").spec)
    assert resnet.style is SPREAD
    assert resnet.because == "largest tensor 9 % of resnet50 (built in), limit 50 %"


def test_a_users_placement_hint_takes_precedence_over_any_skew(profiler: Profiler) -> None:
    placing = profiler.placing(pending(comment="tiresias:model=vgg16,placement=spread").spec)
    assert (placing.style, placing.because) == (SPREAD, "asked for by its user")


def test_an_unknown_model_is_consolidated(profiler: Profiler) -> None:
    placing = profiler.placing(pending(comment="tiresias:model=unheard-of").spec)
    assert placing.style is CONSOLIDATE
    assert placing.because == "nothing is known of unheard-of"
    assert placing.skew is None


def test_a_job_with_an_unreadable_hint_is_placed_without_it(profiler: Profiler) -> None:
    placing = profiler.placing(pending(comment="tiresias:placement=everywhere").spec)
    assert placing.style is CONSOLIDATE
    assert "its hint is not heeded, 'placement=everywhere' is no part of one" in placing.because


def test_a_second_run_is_placed_by_the_first_ones(profiler: Profiler, collect_dir: Path) -> None:
    file = leave(collect_dir, "7.0.n1", "vgg16")
    learn(profiler, OVER)
    assert not file.exists()
    placing = profiler.placing(pending("8").spec)
    assert placing.style is CONSOLIDATE
    assert (
        placing.because == "largest message 74 % of jobs named train (traffic of ann's jobs), "
        "limit 50 %"
    )
    assert "nothing is known" in profiler.placing(pending("9", user="bob").spec).because


def test_a_small_model_in_one_message_is_not_skewed(profiler: Profiler, collect_dir: Path) -> None:
    (collect_dir / "7.0.n1.traffic").write_bytes(traffic_file({24 << 20: 50}))
    learn(profiler, OVER)
    placing = profiler.placing(pending("8").spec)
    assert placing.style is SPREAD
    assert placing.because.endswith("but of 24 MB only, limit 50 MB")


def test_the_measured_cost_of_spreading_beats_skew(profiler: Profiler, collect_dir: Path) -> None:
    for number, nodes, rounds in ((11, 1, 60), (12, 1, 60), (13, 2, 50), (14, 2, 50)):
        for node in range(nodes):
            leave(collect_dir, f"{number}.0.n{node}", "resnet50", rounds // nodes)
        learn(profiler, ended(1000.0, 100.0, key=str(number), raw_id=number))
    placing = profiler.placing(pending("20").spec)
    assert placing.style is CONSOLIDATE
    assert placing.because == (
        "on few nodes jobs named train sent 1.20 times as fast as on more, in 4 runs"
    )


def test_nothing_is_read_before_the_run_is_over(profiler: Profiler, collect_dir: Path) -> None:
    file = leave(collect_dir, "7.1.n1", "vgg16")
    learn(profiler, running(1000.0, 50.0, restarts=1))
    assert file.exists()
    learn(profiler, pending(restarts=2))
    assert not file.exists()
    assert profiler.placing(pending("8").spec).style is CONSOLIDATE


def test_files_of_forgotten_jobs_are_removed(profiler: Profiler, collect_dir: Path) -> None:
    file = leave(collect_dir, "99.0.n1", "vgg16")
    learn(profiler, OVER)
    assert not file.exists()
    assert profiler.placing(pending("8").spec).skew is None


def test_unreadable_files_are_set_aside(profiler: Profiler, collect_dir: Path) -> None:
    (collect_dir / "7.0.n1.traffic").write_bytes(b"forged" * 9000)
    (collect_dir / "7.0.n2.traffic").symlink_to("/etc/passwd")
    (collect_dir / "7.0.n3.traffic").mkdir()
    os.mkfifo(collect_dir / "7.0.n4.traffic")
    leave(collect_dir, "7.0.n5", "vgg16")
    learn(profiler, OVER)
    aside = {path.name for path in (collect_dir / ASIDE).iterdir()}
    assert aside == {f"7.0.n{number}.traffic" for number in (1, 2, 3, 4)}
    assert profiler.placing(pending("8").spec).style is CONSOLIDATE


@pytest.mark.parametrize(
    "name",
    ["7.0.traffic", "7.0.n1.traffic.new", ".7.0.n1.traffic", "a.b.c.traffic", "7.0.n1.progress"],
)
def test_other_files_are_left_alone(profiler: Profiler, collect_dir: Path, name: str) -> None:
    file = collect_dir / name
    file.write_bytes(b"")
    learn(profiler, OVER)
    assert file.exists()


def test_progress_reports_are_left_alone(profiler: Profiler, collect_dir: Path) -> None:
    (collect_dir / "progress").mkdir()
    leave(collect_dir, "7.0.n1", "vgg16")
    leave(collect_dir / "progress", "7.0.n1", "vgg16")
    learn(profiler, OVER)
    left = {str(path.relative_to(collect_dir)) for path in collect_dir.rglob("*")}
    assert left == {"known", "progress", "progress/7.0.n1.traffic"}


def test_a_flood_of_files_is_read_in_several_cycles(
    profiler: Profiler, collect_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect_folder, "FILES_OF_A_LOOK", 2)
    for number in range(5):
        leave(collect_dir, f"7.0.n{number}", "vgg16")
    left = []
    for _ in range(3):
        learn(profiler, OVER)
        left.append(len(list(collect_dir.glob("*.traffic"))))
    assert left == [3, 1, 0]


def test_a_file_system_that_hangs_delays_no_cycle(
    profiler: Profiler, collect_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(collect_dir, "7.0.n1", "vgg16")
    hangs, may_go_on = threading.Event(), threading.Event()

    def hang(_path: object) -> None:
        hangs.set()
        may_go_on.wait(30.0)

    monkeypatch.setattr("slurm_tiresias.profiler.collect_folder.os.scandir", hang)
    profiler.folder.background.start()
    try:
        assert hangs.wait(30.0)
        learn(profiler, OVER)
        assert profiler.placing(pending("8").spec).skew is None
    finally:
        profiler.folder.background.stop()
        may_go_on.set()


def test_files_in_a_read_only_folder_are_read_once(
    store: ProfileStore, config: Config, collect_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiler = Profiler(store, config)
    leave(collect_dir, "7.0.n1", "vgg16")
    monkeypatch.setattr(Path, "unlink", _refuse)
    learn(profiler, OVER)
    store.forget([Key("job", "train", "ann")])
    learn(profiler, OVER)
    assert store.profiles() == []


def test_unreadable_files_are_never_moved_through_a_symlink(
    profiler: Profiler, collect_dir: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (collect_dir / ASIDE).symlink_to(elsewhere)
    (collect_dir / "7.0.n1.traffic").write_text("garbage")
    learn(profiler, OVER)
    assert list(elsewhere.iterdir()) == []
    assert (collect_dir / "7.0.n1.traffic").exists()


def _refuse(_path: Path, missing_ok: bool = False) -> None:
    raise PermissionError(13, "Permission denied")


def test_jobs_are_placed_without_the_folder_or_the_store(
    profiler: Profiler, store: ProfileStore, collect_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    collect_dir.rmdir()
    learn(profiler, OVER)
    learn(profiler, OVER)
    assert caplog.text.count("nothing can be learned") == 1
    store.close()
    collect_dir.mkdir()
    learn(profiler, OVER)
    assert profiler.placing(pending(comment="tiresias:model=vgg16").spec).style is CONSOLIDATE


def test_an_operators_profile_counts_in_the_next_cycle(profiler: Profiler, tmp_path: Path) -> None:
    job = pending(comment="tiresias:model=vgg16")
    learn(profiler)
    with closing(ProfileStore(tmp_path / FILE_NAME)) as other:
        other.save([Profile(Key(MODEL, "vgg16"), Skew(10, 100, 10), "operator", 1.0)])
    learn(profiler)
    assert profiler.placing(job.spec).because == (
        "largest tensor 10 % of vgg16 (noted by an operator), limit 50 %"
    )


def test_the_decision_gets_the_style_and_the_reason(tmp_path: Path, profiler: Profiler) -> None:
    with closing(Ledger(tmp_path / LEDGER_NAME)) as ledger:
        job_store = JobStore(ledger, parse({}), accounting=False)
        job = pending(comment="tiresias:model=vgg16")
        see(job_store, 1000, job)
        view = Feed(job_store, parse({}), profiler.placing)
        [decided] = fed(view, Observation(1000, (job,), (), ())).jobs
    assert decided.style is CONSOLIDATE
    assert decided.skew == pytest.approx(0.743, abs=0.001)
    assert decided.style_because == "largest tensor 74 % of vgg16 (built in), limit 50 %"


def test_the_job_store_knows_how_long_each_run_lasted(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path / LEDGER_NAME)) as ledger:
        job_store = JobStore(ledger, parse({}), accounting=False)
        see(job_store, 1010, running(1000, 10))
        see(job_store, 1020, pending(restarts=1, submit_s=1015))
        assert job_store.accounts.ran_s("7", 0) == 0.0
        see(job_store, 1050, running(1030, 20, restarts=1))
        see(job_store, 1060, ended(1030, 25, restarts=1))
        assert job_store.accounts.ran_s("7", 0) == pytest.approx(20, abs=10)
        assert job_store.accounts.ran_s("7", 1) == 25
        assert job_store.accounts.ran_s("7", 2) == job_store.accounts.ran_s("99", 0) == 0.0


def test_a_requeued_job_that_completes_has_ended(profiler: Profiler, collect_dir: Path) -> None:
    file = leave(collect_dir, "7.0.n1", "vgg16")
    learn(profiler, pending(state=JobState.COMPLETING))
    assert not file.exists()


# GPU use

GPU = GpuRun("GPU-1", samples=3, seen_s=20.0, utilization=0.5)


def leave_gpus(folder: Path, name: str) -> Path:
    """The sampler's file for a job that used one GPU."""
    path = folder / f"{name}.gpus"
    path.write_text(file_text([GPU]))
    return path


def test_a_jobs_gpu_use_is_stored_under_its_program(
    profiler: Profiler, store: ProfileStore, collect_dir: Path
) -> None:
    leave(collect_dir, "7.0.n1", "vgg16")
    files = [leave_gpus(collect_dir, name) for name in ("7.0.n1", "7.0.n2", "8.0.n1")]
    named = ended(1000.0, 100.0, key="8", raw_id=8, admin_comment="tiresias:model=bert")
    learn(profiler, OVER, named)
    assert not any(file.exists() for file in files)
    key = Key(JOB, "train", "ann")
    assert store.gpu_runs("train") == [
        NodeGpus(RunId(7, 0, node), key, (GPU,)) for node in ("n1", "n2")
    ]
    assert [seen.key for seen in store.gpu_runs("bert")] == [Key(MODEL, "bert", "ann")]
    assert [profile.key for profile in store.profiles()] == [key]


def test_gpu_use_is_not_read_while_a_job_runs_nor_stored_for_a_forgotten_job(
    profiler: Profiler, store: ProfileStore, collect_dir: Path
) -> None:
    going_on, forgotten = leave_gpus(collect_dir, "7.1.n1"), leave_gpus(collect_dir, "99.0.n1")
    learn(profiler, running(1000.0, 50.0, restarts=1))
    assert going_on.exists()
    assert not forgotten.exists()
    assert store.gpu_runs("train") == []


def test_unreadable_gpu_files_are_set_aside(
    profiler: Profiler, store: ProfileStore, collect_dir: Path
) -> None:
    (collect_dir / "7.0.n1.gpus").write_text('{"schema": 1, "gpus": [{"uuid": 0}]}')
    (collect_dir / "7.0.n2.gpus").symlink_to(leave_gpus(collect_dir.parent, "7.0.n2"))
    (collect_dir / "7.0.n3.gpus").write_bytes(b" " * (1 << 20))
    os.mkfifo(collect_dir / "7.0.n4.gpus")
    (collect_dir / "7.0.n5.gpus").write_bytes((leave(collect_dir, "7.0.n5", "vgg16")).read_bytes())
    leave_gpus(collect_dir, "7.0.n6")
    learn(profiler, OVER)
    aside = {path.name for path in (collect_dir / ASIDE).iterdir()}
    assert aside == {f"7.0.n{number}.gpus" for number in range(1, 6)}
    assert [seen.run_id.node for seen in store.gpu_runs("train")] == ["n6"]


# The index file for the nodes

BUILT_IN_LINES = [f"built-in {name}" for name in sorted(NAMES)]


def told(collect_dir: Path) -> list[str]:
    """The lines of the index file for the nodes, without those of the built-in models."""
    first, *lines = (collect_dir / KNOWN).read_text().splitlines()
    assert first == "tiresias-known 1"
    assert [line for line in lines if line.startswith("built-in ")] == BUILT_IN_LINES
    return [line for line in lines if not line.startswith("built-in ")]


def profile_of(key: Key, source: str = "operator", noted_s: float = 1.0) -> Profile:
    return Profile(key, Skew(10, 100, 10), source, noted_s)


def test_the_index_file_lists_every_program_with_a_profile(
    profiler: Profiler, store: ProfileStore, collect_dir: Path
) -> None:
    learn(profiler)
    assert told(collect_dir) == []
    leave(collect_dir, "7.0.n1", "vgg16")
    learn(profiler, OVER)
    assert told(collect_dir) == ["job train ann"]
    mode = (collect_dir / KNOWN).stat().st_mode
    assert stat.S_ISREG(mode) and stat.S_IMODE(mode) == 0o644
    assert [path.name for path in collect_dir.iterdir()] == [KNOWN]


def test_profiles_stored_or_forgotten_by_others_reach_the_index_in_the_next_cycle(
    profiler: Profiler, tmp_path: Path, collect_dir: Path
) -> None:
    keys = [Key(MODEL, "bert"), Key(MODEL, "vgg16"), Key(MODEL, "gpt+2", "ann"), Key(JOB, "x", "y")]
    with closing(ProfileStore(tmp_path / FILE_NAME)) as other:
        learn(profiler)
        other.save(profile_of(key) for key in keys)
        learn(profiler)
        # An operator's profile of a built-in model counts in every spelling.
        assert told(collect_dir) == ["job x y", "model bert", "model gpt+2 ann"]
        other.forget(keys[:1])
        learn(profiler)
        assert told(collect_dir) == ["job x y", "model gpt+2 ann"]


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("my job", "my%20job"),
        ("100%\n", "100%25%0A"),
        ("na\u00efve", "na%C3%AFve"),
        ("a-b_c.d~e+f", "a-b_c.d~e+f"),
        ("train ann\njob other", "train%20ann%0Ajob%20other"),
        ("\ud800", "%3F"),
    ],
)
def test_no_name_in_the_index_can_imitate_another(name: str, word: str) -> None:
    """The same words as in spank/tests/test_plugin.c."""
    key = Key(JOB, name, name)
    assert text_of({key: profile_of(key)}) == f"tiresias-known 1\njob {word} {word}\n"


def test_the_index_file_is_rewritten_only_when_its_content_changes(
    profiler: Profiler, store: ProfileStore, collect_dir: Path
) -> None:
    learn(profiler)
    file = collect_dir / KNOWN
    before = file.stat()
    leave(collect_dir, "7.0.n1", "vgg16")
    learn(profiler, OVER)
    after = file.stat()
    assert after.st_ino != before.st_ino
    leave(collect_dir, "7.1.n1", "vgg16")  # of a program that is known by now
    learn(profiler, ended(1000.0, 100.0, restarts=1))
    learn(profiler)
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_the_index_file_is_written_at_start_and_after_its_removal(
    store: ProfileStore, config: Config, collect_dir: Path
) -> None:
    file = collect_dir / KNOWN
    file.write_text("what another controller said")
    (collect_dir / f".{KNOWN}.new").write_text("what it had no time to finish")
    profiler = Profiler(store, config)
    learn(profiler)
    assert told(collect_dir) == []
    file.unlink()
    learn(profiler)
    assert told(collect_dir) == []


def test_a_failed_write_is_logged_once_and_retried(
    profiler: Profiler, collect_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (collect_dir / KNOWN).mkdir()
    leave(collect_dir, "7.0.n1", "vgg16")
    learn(profiler, OVER)
    learn(profiler)
    assert caplog.text.count("the nodes cannot be told") == 1 == len(caplog.records)
    assert [path.name for path in collect_dir.iterdir()] == [KNOWN]
    assert profiler.placing(pending("8").spec).style is CONSOLIDATE
    (collect_dir / KNOWN).rmdir()
    learn(profiler)
    assert told(collect_dir) == ["job train ann"]


def test_without_a_folder_no_index_file_is_written(
    store: ProfileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    learn(Profiler(store, parse({})))
    assert sorted(tmp_path.iterdir()) == before


def test_an_index_that_is_too_long_omits_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [Key(JOB, f"train{number}", "ann") for number in range(4)]
    noted = {key: profile_of(key, "traffic", float(at_s)) for at_s, key in enumerate(keys)}
    operators = Key(MODEL, "bert")
    noted[operators] = profile_of(operators, noted_s=0.0)
    whole = text_of(noted)
    monkeypatch.setattr(profile_index, "MOST_BYTES", len(whole))
    assert text_of(noted) == whole
    monkeypatch.setattr(profile_index, "MOST_BYTES", len(whole) - 1)
    assert text_of(noted) == whole.replace("job train0 ann\n", "")
