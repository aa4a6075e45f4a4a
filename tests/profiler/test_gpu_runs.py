"""Sums over samples of GPUs, the file that stores them, and totals of many files."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from slurm_tiresias.profiler.gpu_runs import (
    MOST_FILE_BYTES,
    MOST_GPUS,
    GpuFileError,
    GpuRun,
    GpuSums,
    NodeGpus,
    file_text,
    parse,
    summary_of,
)
from slurm_tiresias.profiler.gpu_use import GpuUse
from slurm_tiresias.profiler.profile import JOB, Key
from slurm_tiresias.profiler.run_id import RunId, parsed_file_name

KEY = Key(JOB, "train", "ann")
RUN = GpuRun(
    uuid="GPU-1",
    samples=10,
    seen_s=90.0,
    pci="00000000:3B:00.0",
    name="NVIDIA H200",
    utilization=0.5,
    peak_memory_bytes=60 << 30,
    memory_bytes=80 << 30,
    pcie_sent_bytes_per_s=100,
    pcie_received_bytes_per_s=200,
    nvlink_sent_bytes=9000,
    nvlink_received_bytes=18000,
)
ABSENT = GpuRun("GPU-2", samples=1, seen_s=0.0)


def sums_of(*uses: GpuUse) -> GpuRun:
    """Samples ten seconds apart."""
    sums = GpuSums("GPU-1", 100.0)
    for number, use in enumerate(uses):
        sums.add(use, 100.0 + 10 * number)
    return sums.run()


def test_a_figure_missing_in_some_samples_is_averaged_over_the_others() -> None:
    run = sums_of(
        GpuUse("", utilization=0.2, pcie_sent_bytes_per_s=100, nvlink_sent_bytes=50),
        GpuUse("", memory_used_bytes=7, memory_bytes=9),
        GpuUse("", utilization=0.4, memory_used_bytes=5, nvlink_sent_bytes=80),
    )
    assert (run.samples, run.seen_s) == (3, 20.0)
    assert run.utilization == pytest.approx(0.3)
    assert (run.pcie_sent_bytes_per_s, run.pcie_received_bytes_per_s) == (100, None)
    assert (run.peak_memory_bytes, run.memory_bytes) == (7, 9)
    assert (run.nvlink_sent_bytes, run.nvlink_received_bytes) == (30, None)


def test_a_counter_that_was_reset_gives_no_figure() -> None:
    run = sums_of(GpuUse("", nvlink_sent_bytes=500), GpuUse("", nvlink_sent_bytes=20))
    assert run.nvlink_sent_bytes is None


def test_samples_of_a_gpu_without_any_measurement_are_counted() -> None:
    assert sums_of(GpuUse("")) == replace(ABSENT, uuid="GPU-1")


def test_written_files_can_be_read_back() -> None:
    assert parse(file_text([RUN, ABSENT]).encode()) == (RUN, ABSENT)


def test_as_many_gpus_as_are_ever_written_fit_into_a_file() -> None:
    largest = GpuRun(
        **{
            **dict.fromkeys(asdict(RUN), 1 << 62),
            "samples": 1 << 31,
            "seen_s": 123456789.123456789,
            "pci": "00000000:3B:00.0",
            "name": "\u65e5" * 96,
            "utilization": 1 / 3,
        }  # type: ignore[arg-type]
    )
    gpus = [replace(largest, uuid=f"MIG-{number:080}") for number in range(MOST_GPUS)]
    text = file_text(gpus).encode()
    assert len(text) < MOST_FILE_BYTES
    assert parse(text) == tuple(gpus)


FORGED: list[tuple[str, Any]] = [
    ("uuid", "0"),
    ("uuid", 0),
    ("uuid", None),
    ("samples", 0),
    ("samples", 1.5),
    ("samples", True),
    ("samples", 1 << 40),
    ("seen_s", -1),
    ("seen_s", float("nan")),
    ("seen_s", float("inf")),
    ("seen_s", "long"),
    ("pci", "0"),
    ("name", "\x1b[31m"),
    ("name", "x" * 97),
    ("utilization", 1.01),
    ("utilization", -0.1),
    ("utilization", "0.5"),
    ("peak_memory_bytes", -1),
    ("memory_bytes", 1 << 63),
    ("memory_bytes", 1.0),
    ("pcie_sent_bytes_per_s", []),
    ("nvlink_received_bytes", 10**400),
]


@pytest.mark.parametrize(("field", "value"), FORGED)
def test_a_file_with_an_impossible_number_is_refused(field: str, value: Any) -> None:
    entry = {**asdict(RUN), field: value}
    with pytest.raises(GpuFileError, match=f"{field} cannot be right"):
        parse(json.dumps({"schema": 1, "gpus": [entry]}).encode())


def entries_of(*entries: Any, **changes: Any) -> bytes:
    return json.dumps({"schema": 1, "gpus": entries, **changes}).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b"1" * 5000,
        b"[]",
        b"{}",
        entries_of(),
        entries_of(asdict(RUN), schema=2),
        entries_of(asdict(RUN), more=1),
        entries_of(asdict(RUN), asdict(RUN)),
        entries_of(7),
        entries_of({"uuid": "GPU-1"}),
        entries_of({**asdict(RUN), "more": 1}),
        entries_of(*({**asdict(RUN), "uuid": f"GPU-{n}"} for n in range(MOST_GPUS + 1))),
        b" " * MOST_FILE_BYTES + entries_of(asdict(RUN)),
    ],
)
def test_anything_else_is_refused(content: bytes) -> None:
    with pytest.raises(GpuFileError, match="no file of a job's GPUs"):
        parse(content)


@pytest.mark.parametrize(
    "name", ["7.0.n1.gpus", "4294967295.12.node-1.example_2.traffic", "1.2.3.4.gpus"]
)
def test_a_file_name_gives_the_run_and_kind(name: str) -> None:
    named = parsed_file_name(name)
    assert named is not None
    run_id, kind = named
    assert run_id.file_name(kind) == name


@pytest.mark.parametrize(
    "name",
    ["7.0.gpus", ".7.0.n1.gpus.new", "7.0..gpus", "7.0.n1.gpus\n", "7.0.a/b.gpus", "7.0.n1.log"],
)
def test_other_file_names_are_not_parsed(name: str) -> None:
    assert parsed_file_name(name) is None


def seen(job_id: int, node: str, *gpus: GpuRun) -> NodeGpus:
    return NodeGpus(RunId(job_id, 0, node), KEY, gpus)


def test_longer_runs_weigh_more_and_the_fullest_gpu_is_reported() -> None:
    other = replace(
        RUN,
        uuid="GPU-3",
        samples=30,
        seen_s=270.0,
        utilization=0.9,
        peak_memory_bytes=20 << 30,
        memory_bytes=40 << 30,
        pcie_sent_bytes_per_s=None,
        nvlink_sent_bytes=None,
    )
    summary = summary_of([seen(7, "n1", RUN, ABSENT), seen(7, "n2", other), seen(8, "n1", RUN)])
    assert (summary.runs, summary.gpus, summary.samples) == (2, 3, 51)
    assert summary.utilization == pytest.approx((20 * 0.5 + 30 * 0.9) / 50)
    assert (summary.peak_memory_bytes, summary.memory_bytes) == (60 << 30, 80 << 30)
    assert (summary.pcie_sent_bytes_per_s, summary.pcie_received_bytes_per_s) == (100, 200)
    assert summary.nvlink_sent_bytes_per_s == 100
    assert summary.nvlink_received_bytes_per_s == 120


def test_a_summary_without_measurements_has_no_figures() -> None:
    summary = summary_of([seen(7, "n1", ABSENT)])
    assert {value for name, value in asdict(summary).items() if "_" in name} == {None}
    assert (summary.utilization, summary.samples) == (None, 1)


def test_a_gpu_that_was_sampled_once_has_no_rate() -> None:
    once = replace(RUN, samples=1, seen_s=0.0, nvlink_sent_bytes=0)
    assert summary_of([seen(7, "n1", once)]).nvlink_sent_bytes_per_s is None
