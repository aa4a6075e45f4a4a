"""Which GPUs of a node's jobs are busy, by samples; written to a file for the controller.

A GPU is busy for a job if a kernel of one of its processes ran in the last sampling period, and a
few samples longer: a short pause is not idleness. If the driver cannot say whether a kernel ran
(MIG), the presence of a process is enough. Unknown counts as busy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from slurm_tiresias.model import NodeUse
from slurm_tiresias.profiler.gpu_runs import MOST_GPUS
from slurm_tiresias.profiler.run_id import RunId, parsed_run

PAUSE_SAMPLES = 4
"""A GPU still counts as busy for this many samples after a busy one."""

LOW_POWER = 0.3
"""A busy GPU that draws no more than this share of its limit only waits, as for other GPUs in a
collective operation: that takes a seventh (NVIDIA/nccl#968), training more than half."""

SUFFIX = ".gpu-use"
MOST_RUNS = 4096
"""Maximum number of runs reported by one node; far more than any node has."""

MOST_BYTES = MOST_RUNS * 400
_FIRST_LINE = re.compile(r"tiresias-gpu-use 1 ([0-9]{1,11}\.[0-9]{3})", re.ASCII)
_LINE = re.compile(
    r"(\S{1,300}) ([0-9]{1,3}) (-|[0-9]{1,11}\.[0-9]{3}) "
    r"([0-9]{1,9}\.[0-9]{3}) ([0-9]{1,12}\.[0-9]{3}) "
    r"(-|[0-9]{1,11}\.[0-9]{3}) (-|[0-9]{1,9}\.[0-9]{3})",
    re.ASCII,
)


class SampledGpu(NamedTuple):
    """One GPU with a process on it, at one moment."""

    uuid: str
    utilization: float | None
    runs: Collection[RunId] | None
    """The runs whose processes are on it; None if they may belong to any job of the node."""
    power: float | None = None
    """The share of its limit that it draws; None if unknown."""

    @property
    def is_busy(self) -> bool:
        return self.utilization is None or self.utilization > 0.0

    @property
    def may_work(self) -> bool:
        """Whether it is busy with more than waiting, as far as that is known."""
        return self.is_busy and (self.power is None or self.power > LOW_POWER)


@dataclass(slots=True)
class _Run:
    first_s: float
    busy_gpu_s: float = 0.0
    last_busy_s: dict[str, float] = field(default_factory=dict)
    """By GPU; "" stands for a run that may belong to any job."""
    worked_s: float | None = None
    """When one of its GPUs worked last, or may have."""
    power: float | None = None

    @property
    def low_since_s(self) -> float:
        return self.first_s if self.worked_s is None else self.worked_s

    @property
    def idle_since_s(self) -> float:
        return max(self.last_busy_s.values(), default=self.first_s)


class GpuActivity:
    """Tracks the runs of a node from sample to sample; times are by a steady clock."""

    def __init__(self, every_s: float) -> None:
        """``every_s`` is the time between two samples."""
        self._pause_s = PAUSE_SAMPLES * every_s
        self._runs: dict[RunId, _Run] = {}
        self._sampled_s: float | None = None

    def take(self, runs: Collection[RunId], gpus: Iterable[SampledGpu], now_s: float) -> None:
        """Take in a sample of all GPUs that have processes, while these runs are on the node."""
        ago_s = math.inf if self._sampled_s is None else now_s - self._sampled_s
        if not 0.0 <= ago_s <= self._pause_s:
            # The activity meanwhile is unknown: every run begins anew.
            self._runs.clear()
            ago_s = 0.0
        self._sampled_s = now_s
        self._runs = {run_id: self._runs.get(run_id) or _Run(now_s) for run_id in runs}
        for run in self._runs.values():
            run.power = None
        for gpu in gpus:
            if gpu.is_busy:
                for run_id in self._runs if gpu.runs is None else gpu.runs:
                    self._is_busy(run_id, "" if gpu.runs is None else gpu.uuid, now_s)
                    self._works(run_id, gpu, now_s)
        for run in self._runs.values():
            run.busy_gpu_s += ago_s * self._busy(run, now_s)

    def told(self, wall_s: float) -> Mapping[RunId, NodeUse]:
        """Return the report on each run as of the last sample; ``wall_s`` is its time."""
        now_s = self._sampled_s
        if now_s is None:
            return {}
        return {run_id: self._use(run, now_s, wall_s) for run_id, run in self._runs.items()}

    def state(self) -> object:
        """Return the part that the controller must know soon, to be compared for changes."""
        now_s = self._sampled_s or 0.0
        return {
            run_id: (
                self._busy(run, now_s),
                self._is_idle(run, now_s) and run.idle_since_s,
                now_s - run.low_since_s >= self._pause_s and run.low_since_s,
            )
            for run_id, run in self._runs.items()
        }

    def forget(self) -> None:
        """Reset: the GPU activity is unknown at present."""
        self._runs.clear()
        self._sampled_s = None

    def _is_busy(self, run_id: RunId, uuid: str, now_s: float) -> None:
        run = self._runs.get(run_id)
        if run is not None and (uuid in run.last_busy_s or len(run.last_busy_s) < MOST_GPUS):
            run.last_busy_s[uuid] = now_s

    def _works(self, run_id: RunId, gpu: SampledGpu, now_s: float) -> None:
        if (run := self._runs.get(run_id)) is not None:
            if gpu.power is not None:
                run.power = max(run.power or 0.0, gpu.power)
            if gpu.may_work:
                run.worked_s = now_s

    def _busy(self, run: _Run, now_s: float) -> int:
        return sum(now_s - busy_s < self._pause_s for busy_s in run.last_busy_s.values())

    def _is_idle(self, run: _Run, now_s: float) -> bool:
        return now_s - run.idle_since_s >= self._pause_s

    def _use(self, run: _Run, now_s: float, wall_s: float) -> NodeUse:
        behind_s = wall_s - now_s
        since_s = behind_s + run.idle_since_s if self._is_idle(run, now_s) else None
        is_low = now_s - run.low_since_s >= self._pause_s
        return NodeUse(
            wall_s,
            self._busy(run, now_s),
            since_s,
            now_s - run.first_s,
            run.busy_gpu_s,
            behind_s + run.low_since_s if is_low else None,
            run.power,
        )


# The file


def text_of(told: Mapping[RunId, NodeUse], at_s: float) -> bytes:
    """Return the content of the file, written at the Unix time ``at_s``."""
    lines = [f"tiresias-gpu-use 1 {at_s:.3f}\n"]
    for run_id, use in sorted(told.items())[:MOST_RUNS]:
        since = "-" if use.idle_since_s is None else f"{use.idle_since_s:.3f}"
        low = "-" if use.low_since_s is None else f"{use.low_since_s:.3f}"
        power = "-" if use.power is None else f"{use.power:.3f}"
        sums = f"{use.sampled_s:.3f} {use.busy_gpu_s:.3f}"
        lines.append(f"{run_id} {use.busy} {since} {sums} {low} {power}\n")
    return "".join(lines).encode()


def parse(content: bytes) -> dict[RunId, NodeUse]:
    """Return the report on each run in the file; lines that cannot be parsed are left out.

    Raises ``ValueError`` if it is not such a file.
    """
    if len(content) > MOST_BYTES:
        raise ValueError("too long for a node's report on its GPUs")
    first, *lines = content.decode("ascii", "replace").split("\n")
    head = _FIRST_LINE.fullmatch(first)
    if head is None:
        raise ValueError("not a node's report on its GPUs")
    at_s = float(head[1])
    found = {}
    for line in lines:
        match = _LINE.fullmatch(line)
        run_id = parsed_run(match[1]) if match else None
        if match is None or run_id is None:
            continue
        since_s, low_since_s, power = (
            None if match[n] == "-" else float(match[n]) for n in (3, 6, 7)
        )
        sums = float(match[4]), float(match[5])
        if max(since_s or 0.0, low_since_s or 0.0) <= at_s:
            found[run_id] = NodeUse(at_s, int(match[2]), since_s, *sums, low_since_s, power)
    return found
