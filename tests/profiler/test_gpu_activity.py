"""Which GPUs of a node's jobs are busy, sample by sample, and the file that reports it."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_tiresias.model import NodeUse
from slurm_tiresias.profiler.gpu_activity import (
    MOST_BYTES,
    PAUSE_SAMPLES,
    SUFFIX,
    GpuActivity,
    SampledGpu,
    parse,
    text_of,
)
from slurm_tiresias.profiler.gpu_use_folder import (
    FOLDER,
    SIGN_OF_LIFE_S,
    GpuUseFolder,
    GpuUseWriter,
)
from slurm_tiresias.profiler.run_id import RunId

EVERY_S = 10.0
AHEAD_S = 1e9
"""How far Unix time is ahead of the steady clock."""
SEVEN, EIGHT = RunId(7, 0, "n1"), RunId(8, 2, "n1")


class Samples:
    """A recording of samples, played one after another."""

    def __init__(self) -> None:
        self.activity = GpuActivity(EVERY_S)
        self.now_s = 1000.0

    def play(self, times: int, *gpus: SampledGpu, runs: Collection[RunId] = (SEVEN, EIGHT)) -> None:
        for _ in range(times):
            self.now_s += EVERY_S
            self.activity.take(runs, gpus, self.now_s)

    def use(self, run_id: RunId) -> NodeUse:
        return self.activity.told(AHEAD_S + self.now_s)[run_id]


def gpu(
    number: int, utilization: float | None, runs: Collection[RunId] | None = (SEVEN,)
) -> SampledGpu:
    return SampledGpu(f"GPU-{number}", utilization, runs)


@pytest.fixture
def samples() -> Samples:
    return Samples()


def test_a_run_without_a_process_on_a_gpu_is_idle_since_first_seen(samples: Samples) -> None:
    samples.play(PAUSE_SAMPLES)
    assert samples.use(SEVEN).idle_since_s is None
    samples.play(1)
    assert samples.use(SEVEN).idle_since_s == AHEAD_S + 1010.0
    assert samples.use(SEVEN).busy == 0


def test_a_run_whose_processes_do_nothing_is_idle_since_its_last_kernel(samples: Samples) -> None:
    samples.play(3, gpu(0, 0.9), gpu(1, 0.01))
    busy_s = samples.now_s
    samples.play(PAUSE_SAMPLES - 1, gpu(0, 0.0), gpu(1, 0.0))
    assert samples.use(SEVEN).idle_since_s is None, "a pause"
    samples.play(20, gpu(0, 0.0), gpu(1, 0.0))
    assert samples.use(SEVEN).idle_since_s == AHEAD_S + busy_s
    samples.play(1, gpu(0, 0.0), gpu(1, 0.5))
    assert samples.use(SEVEN).idle_since_s is None
    assert samples.use(SEVEN).busy == 1


def test_busy_gpus_are_counted_and_so_is_their_time(samples: Samples) -> None:
    eight = [gpu(number, 0.0 if number else 1.0) for number in range(8)]
    samples.play(11, *eight)
    one = samples.use(SEVEN)
    assert (one.busy, one.sampled_s, one.busy_gpu_s) == (1, 100.0, 100.0)
    samples.play(10, *(gpu(number, 1.0) for number in range(8)))
    every = samples.use(SEVEN)
    assert (every.busy, every.busy_gpu_s) == (8, 900.0)


def test_gpus_are_at_rest_while_all_are_idle_or_busy_at_low_power(samples: Samples) -> None:
    waits, works = gpu(0, 1.0)._replace(power=0.14), gpu(1, 1.0)._replace(power=0.7)
    samples.play(3, waits, works)
    worked_s = samples.now_s
    assert (samples.use(SEVEN).low_since_s, samples.use(SEVEN).power) == (None, 0.7)
    samples.play(20, waits, gpu(1, 0.0)._replace(power=0.1))
    at_rest = samples.use(SEVEN)
    assert (at_rest.low_since_s, at_rest.busy, at_rest.power) == (AHEAD_S + worked_s, 1, 0.14)
    assert at_rest.idle_since_s is None
    # What draws an unknown amount may work.
    samples.play(1, waits, gpu(1, 1.0))
    assert samples.use(SEVEN).low_since_s is None


def test_a_device_with_unknown_activity_counts_as_busy(samples: Samples) -> None:
    samples.play(10, gpu(0, None))
    assert samples.use(SEVEN).busy == 1


def test_gpus_of_unknown_jobs_make_all_jobs_busy(samples: Samples) -> None:
    samples.play(10, gpu(0, 1.0, runs=(EIGHT,)), gpu(1, 1.0, runs=()))
    assert samples.use(SEVEN).idle_since_s is not None
    assert samples.use(EIGHT).idle_since_s is None
    samples.play(1, gpu(2, 1.0, runs=None))
    assert samples.use(SEVEN).idle_since_s is None
    samples.play(10, gpu(2, 0.0, runs=None))
    assert samples.use(SEVEN).idle_since_s is not None


@pytest.mark.parametrize("gap_s", [PAUSE_SAMPLES * EVERY_S + 1, -500.0])
def test_after_a_gap_in_the_samples_the_idle_time_restarts(samples: Samples, gap_s: float) -> None:
    samples.play(20)
    samples.now_s += gap_s - EVERY_S
    samples.play(1)
    assert samples.use(SEVEN) == NodeUse(AHEAD_S + samples.now_s, 0, None, 0.0, 0.0)


def test_a_new_run_of_the_same_job_restarts_the_idle_time(samples: Samples) -> None:
    samples.play(20)
    again = RunId(7, 1, "n1")
    samples.play(1, runs=(again,))
    assert samples.activity.told(0.0).keys() == {again}
    assert samples.use(again).idle_since_s is None


thousandths = st.integers(0, 10**12).map(lambda n: n / 1000)
told = st.dictionaries(
    st.builds(RunId, st.integers(0, 10**9), st.integers(0, 99), st.sampled_from(["n1", "gpu-2.x"])),
    st.builds(
        NodeUse,
        at_s=st.just(1e9),
        busy=st.integers(0, 128),
        idle_since_s=st.none() | thousandths.filter(lambda s: s <= 1e9),
        sampled_s=thousandths.filter(lambda s: s < 1e9),
        busy_gpu_s=thousandths,
        low_since_s=st.none() | thousandths.filter(lambda s: s <= 1e9),
        power=st.none() | thousandths.filter(lambda share: share < 10),
    ),
)


@given(told)
def test_written_files_can_be_read(uses: dict[RunId, NodeUse]) -> None:
    assert parse(text_of(uses, 1e9)) == uses


@given(st.binary(max_size=300), st.booleans())
def test_a_file_is_refused_or_its_bad_lines_are_left_out(content: bytes, with_head: bool) -> None:
    head = b"tiresias-gpu-use 1 1000.000\n" if with_head else b""
    try:
        found = parse(head + content)
    except ValueError:
        return
    assert all(use.idle_since_s is None or use.idle_since_s <= use.at_s for use in found.values())


@pytest.mark.parametrize(
    "line",
    [
        "7.0.n1 0 2000.000 1.000 1.000 - -",
        "7.0.n1 0 nan 1.000 1.000 - -",
        "7.0.n1 -1 - 1.000 1.000 - -",
        "7.0.n1 9999 - 1.000 1.000 - -",
        "7.0.n1 0 - 1e99 1.000 - -",
        "7.0.n1 0 - 1.000 - -",
        "../7.0.n1 0 - 1.000 1.000 - -",
        "7.0.n1 0 - 1.000 1.000 - - more",
        "7.0.n1 0 - 1.000 1.000 2000.000 -",
        "7.0.n1 0 - 1.000 1.000 - nan",
    ],
)
def test_lines_with_impossible_values_are_left_out(line: str) -> None:
    good = "8.0.n1 0 900.000 1.000 1.000 - 0.500"
    content = f"tiresias-gpu-use 1 1000.000\n{line}\n{good}\n".encode()
    assert list(parse(content)) == [RunId(8, 0, "n1")]


def test_a_file_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="too long"):
        parse(b"tiresias-gpu-use 1 1000.000\n" + b"x" * MOST_BYTES)


# The folder


@pytest.fixture
def folder(tmp_path: Path) -> GpuUseFolder:
    found = GpuUseFolder(str(tmp_path))
    found.look()
    return found


def idle(run_id: RunId = SEVEN, at_s: float = 1000.0) -> bytes:
    return text_of({run_id: NodeUse(at_s, 0, 900.0, 100.0, 0.0)}, at_s)


def put(tmp_path: Path, name: str, content: bytes, mode: int = 0o640) -> Path:
    path = tmp_path / FOLDER / name
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_a_node_writes_only_changes_and_only_if_the_folder_exists(tmp_path: Path) -> None:
    samples, writer = Samples(), GpuUseWriter(tmp_path, "host/1")
    assert not writer.is_wanted()
    folder = GpuUseFolder(str(tmp_path))
    folder.look()
    assert writer.is_wanted()
    file = tmp_path / FOLDER / f"host-1{SUFFIX}"

    def written(times: int, *gpus: SampledGpu) -> list[int]:
        """Play samples; return after which of them the file was written."""
        found = []
        for number in range(times):
            samples.play(1, *gpus)
            before = file.stat().st_ino if file.exists() else None
            writer.tell(samples.activity, samples.now_s, AHEAD_S + samples.now_s)
            if file.stat().st_ino != before:
                found.append(number)
        return found

    assert written(5, gpu(0, 1.0)) == [0, 4], "both runs, and that one of them is idle"
    assert written(12, gpu(0, 1.0)) == [5, 11], f"every {SIGN_OF_LIFE_S:g} s"
    folder.look()
    assert folder.latest[8, 2]["n1"].idle_since_s == AHEAD_S + 1010.0
    assert folder.latest[7, 0]["n1"].busy == 1


def test_files_of_other_users_are_ignored(tmp_path: Path, folder: GpuUseFolder) -> None:
    put(tmp_path, f"a{SUFFIX}", idle())
    put(tmp_path, f"open{SUFFIX}", idle(RunId(1, 0, "n1")), mode=0o666)
    (tmp_path / "elsewhere").write_bytes(idle(RunId(2, 0, "n1")))
    (tmp_path / FOLDER / f"link{SUFFIX}").symlink_to(tmp_path / "elsewhere")
    (tmp_path / FOLDER / f"folder{SUFFIX}").mkdir()
    os.mkfifo(tmp_path / FOLDER / f"pipe{SUFFIX}", 0o600)
    put(tmp_path, f"garbage{SUFFIX}", b"\xff" * 100)
    put(tmp_path, "another", idle(RunId(3, 0, "n1")))
    if os.geteuid() == 0:
        os.chown(put(tmp_path, f"forged{SUFFIX}", idle(RunId(4, 0, "n1"))), 12345, 12345)
    folder.look()
    assert folder.latest.keys() == {(7, 0)}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
def test_a_folder_created_by_a_user_is_ignored(tmp_path: Path) -> None:
    made = tmp_path / FOLDER
    made.mkdir()
    put(tmp_path, f"a{SUFFIX}", idle())
    os.chown(made, 12345, 12345)
    folder = GpuUseFolder(str(tmp_path))
    folder.look()
    assert folder.latest == {}


def test_the_later_of_two_files_of_a_node_counts(tmp_path: Path, folder: GpuUseFolder) -> None:
    put(tmp_path, f"a{SUFFIX}", idle(at_s=2000.0))
    put(tmp_path, f"b{SUFFIX}", idle(at_s=1000.0))
    folder.look()
    assert folder.latest[7, 0]["n1"].at_s == 2000.0


def test_a_removed_file_no_longer_counts(tmp_path: Path, folder: GpuUseFolder) -> None:
    file = put(tmp_path, f"a{SUFFIX}", idle())
    folder.look()
    assert folder.latest
    file.unlink()
    folder.look()
    assert not folder.latest
