"""A job's GPU use during a run: sums over samples, and the file that holds them.

The sampler on a node writes the file and the controller reads it. Many users can write to its
folder, so everything in it is checked before use.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from slurm_tiresias.errors import TiresiasError
from slurm_tiresias.profiler.gpu_use import GpuUse, is_pci_address, is_uuid
from slurm_tiresias.profiler.profile import MOST_BYTES, Key
from slurm_tiresias.profiler.run_id import RunId

SCHEMA = 1
MOST_GPUS = 128
"""Bound for one run on one node: sixteen GPUs, each divided into seven, and a margin."""

MOST_FILE_BYTES = 256 << 10
MOST_NAME_CHARACTERS = 96
"""The longest GPU name that NVML returns."""

_MOST_SAMPLES = 1 << 31
_MOST_SECONDS = 1e9


class GpuFileError(TiresiasError):
    """A collected file is not in the format that the sampler writes."""


@dataclass(frozen=True, slots=True)
class GpuRun:
    """What was measured of one GPU or MIG device on one node while a run used it.

    Utilization (0 to 1) and PCIe are means over the samples. Memory is that in use on the GPU, by
    all processes. NVLink is counted between the first and the last sample, ``seen_s`` apart. None
    marks a number that was not available.
    """

    uuid: str
    samples: int
    seen_s: float
    pci: str | None = None
    name: str | None = None
    utilization: float | None = None
    peak_memory_bytes: int | None = None
    memory_bytes: int | None = None
    pcie_sent_bytes_per_s: int | None = None
    pcie_received_bytes_per_s: int | None = None
    nvlink_sent_bytes: int | None = None
    nvlink_received_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """How one run of a program used the GPUs of one node."""

    run_id: RunId
    key: Key
    gpus: tuple[GpuRun, ...]


# Adding up


_RATES = ("pcie_sent_bytes_per_s", "pcie_received_bytes_per_s")
_COUNTERS = ("nvlink_sent_bytes", "nvlink_received_bytes")


class GpuSums:
    """The sums over one GPU's samples so far; ``now_s`` may be from any monotonic clock."""

    def __init__(self, uuid: str, began_s: float) -> None:
        self._began_s = began_s
        self._seen: dict[str, Any] = {"uuid": uuid, "samples": 0, "seen_s": 0.0}
        """What a ``GpuRun`` has of these samples already."""
        self._sums: dict[str, tuple[float, int]] = {}
        """Of each mean the sum, and of how many samples."""
        self._counted: dict[str, tuple[int, int]] = {}
        """The first and the last value of each counter."""

    def add(self, use: GpuUse, now_s: float) -> None:
        seen = self._seen
        seen |= {"samples": seen["samples"] + 1, "seen_s": now_s - self._began_s}
        name = use.name and use.name[:MOST_NAME_CHARACTERS]
        seen |= {key: text for key, text in (("pci", use.pci), ("name", name)) if text}
        peaks = {"memory_bytes": use.memory_bytes, "peak_memory_bytes": use.memory_used_bytes}
        seen |= {key: max(n, seen.get(key, 0)) for key, n in peaks.items() if n is not None}
        for key in ("utilization", *_RATES):
            if (value := getattr(use, key)) is not None:
                total, count = self._sums.get(key, (0.0, 0))
                self._sums[key] = total + value, count + 1
        for key in _COUNTERS:
            if (value := getattr(use, key)) is not None:
                self._counted[key] = self._counted.get(key, (value, value))[0], value

    def run(self) -> GpuRun:
        means = {key: total / count for key, (total, count) in self._sums.items()}
        means |= {key: round(means[key]) for key in _RATES if key in means}
        # A counter that is below its first value was reset meanwhile.
        more = {key: last - first for key, (first, last) in self._counted.items() if last >= first}
        return GpuRun(**{**self._seen, **means, **more})


# The file


def file_text(gpus: Iterable[GpuRun]) -> str:
    """Return the text of the file that the sampler writes for one run."""
    return json.dumps({"schema": SCHEMA, "gpus": [asdict(gpu) for gpu in gpus]}) + "\n"


def parse(content: bytes) -> tuple[GpuRun, ...]:
    """Parse a collected file; raise ``GpuFileError`` if anything in it is wrong."""
    if len(content) > MOST_FILE_BYTES:
        raise _fault("it is too long")
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _fault("it is not JSON") from error
    match data:
        case {"schema": 1, "gpus": [*entries], **rest} if not rest:
            gpus = tuple(_gpu_run(entry) for entry in entries)
        case _:
            raise _fault("it is not of this version")
    if not 0 < len(gpus) <= MOST_GPUS or len({gpu.uuid for gpu in gpus}) < len(gpus):
        raise _fault("it names too many GPUs, one of them twice, or none")
    return gpus


def _fault(what: str) -> GpuFileError:
    return GpuFileError(
        f"It is not a file of a job's GPUs: {what}",
        "Nothing needs to be done; the GPU use is not stored",
    )


def _gpu_run(entry: object) -> GpuRun:
    if not isinstance(entry, dict) or entry.keys() != _IS_SOUND.keys():
        raise _fault("an entry has other fields")
    for name, is_sound in _IS_SOUND.items():
        if not is_sound(entry[name]):
            raise _fault(f"{name} is impossible")
    return GpuRun(**entry)


Check = Callable[[Any], bool]


def _whole(most: int, least: int = 0) -> Check:
    return lambda value: type(value) is int and least <= value <= most


def _number(most: float) -> Check:
    return lambda value: type(value) in (int, float) and math.isfinite(value) and 0 <= value <= most


def _text(is_right: Callable[[str], bool]) -> Check:
    return lambda value: isinstance(value, str) and is_right(value)


def _or_absent(check: Check) -> Check:
    return lambda value: value is None or check(value)


_BYTES = _or_absent(_whole(MOST_BYTES))
_IS_SOUND: Mapping[str, Check] = {
    "uuid": _text(is_uuid),
    "samples": _whole(_MOST_SAMPLES, least=1),
    "seen_s": _number(_MOST_SECONDS),
    "pci": _or_absent(_text(is_pci_address)),
    "name": _or_absent(
        _text(lambda name: name.isprintable() and len(name) <= MOST_NAME_CHARACTERS)
    ),
    "utilization": _or_absent(_number(1.0)),
    "peak_memory_bytes": _BYTES,
    "memory_bytes": _BYTES,
    "pcie_sent_bytes_per_s": _BYTES,
    "pcie_received_bytes_per_s": _BYTES,
    "nvlink_sent_bytes": _BYTES,
    "nvlink_received_bytes": _BYTES,
}
assert list(_IS_SOUND) == [each.name for each in fields(GpuRun)]


# All runs of a program


@dataclass(frozen=True, slots=True)
class GpuSummary:
    """What a program did with its GPUs, over all runs that are kept.

    Utilization and rates are means per GPU. The peak is that of the fullest GPU, and
    ``memory_bytes`` is that GPU's memory.
    """

    runs: int
    gpus: int
    samples: int
    utilization: float | None
    peak_memory_bytes: int | None
    memory_bytes: int | None
    pcie_sent_bytes_per_s: int | None
    pcie_received_bytes_per_s: int | None
    nvlink_sent_bytes_per_s: int | None
    nvlink_received_bytes_per_s: int | None


def summary_of(seen: Sequence[NodeGpus]) -> GpuSummary:
    gpus = [gpu for node in seen for gpu in node.gpus]
    fullest = max(gpus, key=lambda gpu: gpu.peak_memory_bytes or 0)
    pcie_sent = _mean((gpu.pcie_sent_bytes_per_s, gpu.samples) for gpu in gpus)
    pcie_received = _mean((gpu.pcie_received_bytes_per_s, gpu.samples) for gpu in gpus)
    return GpuSummary(
        runs=len({(node.run_id.job_id, node.run_id.restarts) for node in seen}),
        gpus=len({gpu.uuid for gpu in gpus}),
        samples=sum(gpu.samples for gpu in gpus),
        utilization=_mean((gpu.utilization, gpu.samples) for gpu in gpus),
        peak_memory_bytes=fullest.peak_memory_bytes,
        memory_bytes=fullest.memory_bytes,
        pcie_sent_bytes_per_s=None if pcie_sent is None else round(pcie_sent),
        pcie_received_bytes_per_s=None if pcie_received is None else round(pcie_received),
        nvlink_sent_bytes_per_s=_rate((gpu.nvlink_sent_bytes, gpu.seen_s) for gpu in gpus),
        nvlink_received_bytes_per_s=_rate((gpu.nvlink_received_bytes, gpu.seen_s) for gpu in gpus),
    )


def _mean(weighed: Iterable[tuple[float | None, float]]) -> float | None:
    present = [(value, weight) for value, weight in weighed if value is not None]
    total = sum(weight for _, weight in present)
    return sum(value * weight for value, weight in present) / total if total else None


def _rate(counted: Iterable[tuple[int | None, float]]) -> int | None:
    """Return the mean rate per second and GPU, without GPUs that were sampled only once."""
    present = [(count, seen_s) for count, seen_s in counted if count is not None]
    total_s = sum(seen_s for _, seen_s in present)
    return round(sum(count for count, _ in present) / total_s) if total_s else None
