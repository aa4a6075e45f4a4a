"""Learning from ended jobs, and placing later jobs accordingly."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from slurm_tiresias.profiler.placing import Placing
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


@dataclass
class Learning:
    """A profiler, its store, and the folder into which nodes write."""

    folder: Path
    config: Config
    store: ProfileStore
    profiler: Profiler
    patch: pytest.MonkeyPatch

    def learn(self, *jobs: JobStatus, ran_s: float = 100.0) -> None:
        self.profiler.learn(Observation(5000.0, jobs, (), ()), lambda _key, _restarts: ran_s)

    def leave(self, name: str, model: str = "vgg16", rounds: int = 50) -> Path:
        """The file of a node for a job that sent this model's tensors this many times."""
        path = self.folder / f"{name}.traffic"
        path.write_bytes(traffic_file(rounds_of(list(tensor_sizes(model)), rounds)))
        return path

    def leave_gpus(self, name: str) -> Path:
        """The sampler's file for a job that used one GPU."""
        path = self.folder / f"{name}.gpus"
        path.write_text(file_text([GPU]))
        return path

    def placing(self, key: str = "8", **changes: Any) -> Placing:
        """How a waiting job is placed."""
        return self.profiler.placing(pending(key, **changes).spec)


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Learning]:
    folder = tmp_path / "collected"
    folder.mkdir()
    config = parse({"profiler": {"collect_dir": str(folder)}})
    with closing(ProfileStore(tmp_path / FILE_NAME)) as store:
        yield Learning(folder, config, store, Profiler(store, config), monkeypatch)


GPU = GpuRun("GPU-1", samples=3, seen_s=20.0, utilization=0.5)
OVER = ended(1000.0, 100.0)


def test_placement_follows_the_named_model_and_shows_its_number(one: Learning) -> None:
    vgg = one.placing(admin_comment="tiresias:model=vgg16")
    assert vgg.style is CONSOLIDATE
    assert vgg.because == "largest tensor 74 % of vgg16 (built in), limit 50 %"
    resnet = one.placing(comment="tiresias:model=ResNet-50")
    assert resnet.style is SPREAD
    assert resnet.because == "largest tensor 9 % of resnet50 (built in), limit 50 %"


def test_a_users_placement_hint_takes_precedence_over_any_skew(one: Learning) -> None:
    placing = one.placing(comment="tiresias:model=vgg16,placement=spread")
    assert (placing.style, placing.because) == (SPREAD, "asked for by its user")


def test_an_unknown_model_is_consolidated(one: Learning) -> None:
    placing = one.placing(comment="tiresias:model=unheard-of")
    assert placing.style is CONSOLIDATE
    assert placing.because == "nothing is known of unheard-of"
    assert placing.skew is None


def test_a_job_with_an_unreadable_hint_is_placed_without_it(one: Learning) -> None:
    placing = one.placing(comment="tiresias:placement=everywhere")
    assert placing.style is CONSOLIDATE
    assert "its hint is not heeded, 'placement=everywhere' is no part of one" in placing.because


def test_a_second_run_is_placed_by_the_first_ones(one: Learning) -> None:
    file = one.leave("7.0.n1")
    one.learn(OVER)
    assert not file.exists()
    placing = one.placing()
    assert placing.style is CONSOLIDATE
    assert (
        placing.because == "largest message 74 % of jobs named train (traffic of ann's jobs), "
        "limit 50 %"
    )
    assert "nothing is known" in one.placing("9", user="bob").because


def test_a_small_model_in_one_message_is_not_skewed(one: Learning) -> None:
    (one.folder / "7.0.n1.traffic").write_bytes(traffic_file({24 << 20: 50}))
    one.learn(OVER)
    placing = one.placing()
    assert placing.style is SPREAD
    assert placing.because.endswith("but of 24 MB only, limit 50 MB")


def test_the_measured_cost_of_spreading_beats_skew(one: Learning) -> None:
    for number, nodes, rounds in ((11, 1, 60), (12, 1, 60), (13, 2, 50), (14, 2, 50)):
        for node in range(nodes):
            one.leave(f"{number}.0.n{node}", "resnet50", rounds // nodes)
        one.learn(ended(1000.0, 100.0, key=str(number), raw_id=number))
    placing = one.placing("20")
    assert placing.style is CONSOLIDATE
    assert placing.because == (
        "on few nodes jobs named train sent 1.20 times as fast as on more, in 4 runs"
    )


def test_nothing_is_read_before_the_run_is_over(one: Learning) -> None:
    file = one.leave("7.1.n1")
    one.learn(running(1000.0, 50.0, restarts=1))
    assert file.exists()
    one.learn(pending(restarts=2))
    assert not file.exists()
    assert one.placing().style is CONSOLIDATE


def test_files_of_forgotten_jobs_are_removed(one: Learning) -> None:
    file = one.leave("99.0.n1")
    one.learn(OVER)
    assert not file.exists()
    assert one.placing().skew is None


def test_unreadable_files_are_set_aside(one: Learning) -> None:
    (one.folder / "7.0.n1.traffic").write_bytes(b"forged" * 9000)
    (one.folder / "7.0.n2.traffic").symlink_to("/etc/passwd")
    (one.folder / "7.0.n3.traffic").mkdir()
    os.mkfifo(one.folder / "7.0.n4.traffic")
    one.leave("7.0.n5")
    one.learn(OVER)
    aside = {path.name for path in (one.folder / ASIDE).iterdir()}
    assert aside == {f"7.0.n{number}.traffic" for number in (1, 2, 3, 4)}
    assert one.placing().style is CONSOLIDATE


@pytest.mark.parametrize(
    "name",
    ["7.0.traffic", "7.0.n1.traffic.new", ".7.0.n1.traffic", "a.b.c.traffic", "7.0.n1.progress"],
)
def test_other_files_are_left_alone(one: Learning, name: str) -> None:
    file = one.folder / name
    file.write_bytes(b"")
    one.learn(OVER)
    assert file.exists()


def test_progress_reports_are_left_alone(one: Learning) -> None:
    (one.folder / "progress").mkdir()
    one.leave("7.0.n1")
    one.leave("progress/7.0.n1")
    one.learn(OVER)
    left = {str(path.relative_to(one.folder)) for path in one.folder.rglob("*")}
    assert left == {"known", "progress", "progress/7.0.n1.traffic"}


def test_a_flood_of_files_is_read_in_several_cycles(one: Learning) -> None:
    one.patch.setattr(collect_folder, "FILES_OF_A_LOOK", 2)
    for number in range(5):
        one.leave(f"7.0.n{number}")
    left = []
    for _ in range(3):
        one.learn(OVER)
        left.append(len(list(one.folder.glob("*.traffic"))))
    assert left == [3, 1, 0]


def test_a_file_system_that_hangs_delays_no_cycle(one: Learning) -> None:
    one.leave("7.0.n1")
    hangs, may_go_on = threading.Event(), threading.Event()

    def hang(_path: object) -> None:
        hangs.set()
        may_go_on.wait(30.0)

    one.patch.setattr("slurm_tiresias.profiler.collect_folder.os.scandir", hang)
    one.profiler.folder.background.start()
    try:
        assert hangs.wait(30.0)
        one.learn(OVER)
        assert one.placing().skew is None
    finally:
        one.profiler.folder.background.stop()
        may_go_on.set()


def test_files_in_a_read_only_folder_are_read_once(one: Learning) -> None:
    one.leave("7.0.n1")
    one.patch.setattr(Path, "unlink", _refuse)
    one.learn(OVER)
    one.store.forget([Key("job", "train", "ann")])
    one.learn(OVER)
    assert one.store.profiles() == []


def test_unreadable_files_are_never_moved_through_a_symlink(one: Learning, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (one.folder / ASIDE).symlink_to(elsewhere)
    (one.folder / "7.0.n1.traffic").write_text("garbage")
    one.learn(OVER)
    assert list(elsewhere.iterdir()) == []
    assert (one.folder / "7.0.n1.traffic").exists()


def _refuse(_path: Path, missing_ok: bool = False) -> None:
    raise PermissionError(13, "Permission denied")


def test_jobs_are_placed_without_the_folder_or_the_store(
    one: Learning, caplog: pytest.LogCaptureFixture
) -> None:
    one.folder.rmdir()
    one.learn(OVER)
    one.learn(OVER)
    assert caplog.text.count("nothing can be learned") == 1
    one.store.close()
    one.folder.mkdir()
    one.learn(OVER)
    assert one.placing(comment="tiresias:model=vgg16").style is CONSOLIDATE


def test_an_operators_profile_counts_in_the_next_cycle(one: Learning, tmp_path: Path) -> None:
    job = pending(comment="tiresias:model=vgg16")
    one.learn()
    with closing(ProfileStore(tmp_path / FILE_NAME)) as other:
        other.save([Profile(Key(MODEL, "vgg16"), Skew(10, 100, 10), "operator", 1.0)])
    one.learn()
    assert one.profiler.placing(job.spec).because == (
        "largest tensor 10 % of vgg16 (noted by an operator), limit 50 %"
    )


def test_the_decision_gets_the_style_and_the_reason(one: Learning, tmp_path: Path) -> None:
    with closing(Ledger(tmp_path / LEDGER_NAME)) as ledger:
        job_store = JobStore(ledger, parse({}), accounting=False)
        job = pending(comment="tiresias:model=vgg16")
        see(job_store, 1000, job)
        view = Feed(job_store, parse({}), one.profiler.placing)
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


def test_a_requeued_job_that_completes_has_ended(one: Learning) -> None:
    file = one.leave("7.0.n1")
    one.learn(pending(state=JobState.COMPLETING))
    assert not file.exists()


# GPU use


def test_a_jobs_gpu_use_is_stored_under_its_program(one: Learning) -> None:
    one.leave("7.0.n1")
    files = [one.leave_gpus(name) for name in ("7.0.n1", "7.0.n2", "8.0.n1")]
    named = ended(1000.0, 100.0, key="8", raw_id=8, admin_comment="tiresias:model=bert")
    one.learn(OVER, named)
    assert not any(file.exists() for file in files)
    key = Key(JOB, "train", "ann")
    assert one.store.gpu_runs("train") == [
        NodeGpus(RunId(7, 0, node), key, (GPU,)) for node in ("n1", "n2")
    ]
    assert [seen.key for seen in one.store.gpu_runs("bert")] == [Key(MODEL, "bert", "ann")]
    assert [profile.key for profile in one.store.profiles()] == [key]


def test_gpu_use_is_not_read_while_a_job_runs_nor_stored_for_a_forgotten_job(one: Learning) -> None:
    going_on, forgotten = one.leave_gpus("7.1.n1"), one.leave_gpus("99.0.n1")
    one.learn(running(1000.0, 50.0, restarts=1))
    assert going_on.exists()
    assert not forgotten.exists()
    assert one.store.gpu_runs("train") == []


def test_unreadable_gpu_files_are_set_aside(one: Learning) -> None:
    (one.folder / "7.0.n1.gpus").write_text('{"schema": 1, "gpus": [{"uuid": 0}]}')
    (one.folder / "7.0.n2.gpus").symlink_to(one.leave_gpus("../7.0.n2"))
    (one.folder / "7.0.n3.gpus").write_bytes(b" " * (1 << 20))
    os.mkfifo(one.folder / "7.0.n4.gpus")
    (one.folder / "7.0.n5.gpus").write_bytes((one.leave("7.0.n5")).read_bytes())
    one.leave_gpus("7.0.n6")
    one.learn(OVER)
    aside = {path.name for path in (one.folder / ASIDE).iterdir()}
    assert aside == {f"7.0.n{number}.gpus" for number in range(1, 6)}
    assert [seen.run_id.node for seen in one.store.gpu_runs("train")] == ["n6"]


# The index file for the nodes

BUILT_IN_LINES = [f"built-in {name}" for name in sorted(NAMES)]


def told(one: Learning) -> list[str]:
    """The lines of the index file for the nodes, without those of the built-in models."""
    first, *lines = (one.folder / KNOWN).read_text().splitlines()
    assert first == "tiresias-known 1"
    assert [line for line in lines if line.startswith("built-in ")] == BUILT_IN_LINES
    return [line for line in lines if not line.startswith("built-in ")]


def profile_of(key: Key, source: str = "operator", noted_s: float = 1.0) -> Profile:
    return Profile(key, Skew(10, 100, 10), source, noted_s)


def test_the_index_file_lists_every_program_with_a_profile(one: Learning) -> None:
    one.learn()
    assert told(one) == []
    one.leave("7.0.n1")
    one.learn(OVER)
    assert told(one) == ["job train ann"]
    mode = (one.folder / KNOWN).stat().st_mode
    assert stat.S_ISREG(mode) and stat.S_IMODE(mode) == 0o644
    assert [path.name for path in one.folder.iterdir()] == [KNOWN]


def test_profiles_stored_or_forgotten_by_others_reach_the_index_in_the_next_cycle(
    one: Learning, tmp_path: Path
) -> None:
    keys = [Key(MODEL, "bert"), Key(MODEL, "vgg16"), Key(MODEL, "gpt+2", "ann"), Key(JOB, "x", "y")]
    with closing(ProfileStore(tmp_path / FILE_NAME)) as other:
        one.learn()
        other.save(profile_of(key) for key in keys)
        one.learn()
        # An operator's profile of a built-in model counts in every spelling.
        assert told(one) == ["job x y", "model bert", "model gpt+2 ann"]
        other.forget(keys[:1])
        one.learn()
        assert told(one) == ["job x y", "model gpt+2 ann"]


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


def test_the_index_file_is_rewritten_only_when_its_content_changes(one: Learning) -> None:
    one.learn()
    file = one.folder / KNOWN
    before = file.stat()
    one.leave("7.0.n1")
    one.learn(OVER)
    after = file.stat()
    assert after.st_ino != before.st_ino
    one.leave("7.1.n1")  # of a program that is known by now
    one.learn(ended(1000.0, 100.0, restarts=1))
    one.learn()
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_the_index_file_is_written_at_start_and_after_its_removal(one: Learning) -> None:
    file = one.folder / KNOWN
    file.write_text("what another controller said")
    (one.folder / f".{KNOWN}.new").write_text("what it had no time to finish")
    one.profiler = Profiler(one.store, one.config)
    one.learn()
    assert told(one) == []
    file.unlink()
    one.learn()
    assert told(one) == []


def test_a_failed_write_is_logged_once_and_retried(
    one: Learning, caplog: pytest.LogCaptureFixture
) -> None:
    (one.folder / KNOWN).mkdir()
    one.leave("7.0.n1")
    one.learn(OVER)
    one.learn()
    assert caplog.text.count("the nodes cannot be told") == 1 == len(caplog.records)
    assert [path.name for path in one.folder.iterdir()] == [KNOWN]
    assert one.placing().style is CONSOLIDATE
    (one.folder / KNOWN).rmdir()
    one.learn()
    assert told(one) == ["job train ann"]


def test_without_a_folder_no_index_file_is_written(one: Learning, tmp_path: Path) -> None:
    one.patch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    one.profiler = Profiler(one.store, parse({}))
    one.learn()
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
