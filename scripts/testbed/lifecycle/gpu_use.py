"""The GPU use of jobs of the in-memory Slurm, written as the files that nodes would write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from scripts.testbed.in_memory.clock import Clock
from slurm_tiresias.model import JobState, JobStatus, NodeUse
from slurm_tiresias.profiler.gpu_activity import SUFFIX, text_of
from slurm_tiresias.profiler.gpu_use_folder import FOLDER, GpuUseFolder
from slurm_tiresias.profiler.run_id import RunId

Run = tuple[str, float]
"""A job and the start of its run."""


@dataclass
class Use:
    """What one node knows about one run; times are by the steady clock."""

    idle_since_s: float
    first_s: float
    has_been_busy: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """The last sample of all nodes of a run."""

    at_s: float
    busy: int
    idle_since_s: float | None
    """Since when all of its GPUs have been idle, by the steady clock."""


@dataclass
class GpuUses:
    """The samples of all nodes; their clocks are slurmctld's. A job uses all of its GPUs unless it
    was made ``idle``."""

    collect: Path
    clock: Clock
    idle: set[str] = field(default_factory=set)
    """Jobs that use none of their GPUs."""
    partly: set[str] = field(default_factory=set)
    """Other jobs that use only one GPU, on their first node."""
    silent: bool = False
    """Whether the nodes write no samples for now."""
    told: dict[Run, Told] = field(default_factory=dict)
    unused_s: dict[str, float] = field(default_factory=dict)
    """For how long each job has run without using a GPU by the samples, over all its runs."""
    _before_s: dict[Run, float] = field(default_factory=dict)
    """The same up to the start of a run."""
    _uses: dict[tuple[str, Run], Use] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.collect / FOLDER).mkdir(parents=True, exist_ok=True)

    def folder(self) -> GpuUseFolder:
        """The folder, as a controller that has just started reads it."""
        return GpuUseFolder(str(self.collect))

    def begin_anew(self, node: str) -> None:
        """Restart the sampler of a node: it knows nothing of earlier times."""
        self._uses = {of: use for of, use in self._uses.items() if of[0] != node}

    def tell(self, jobs: Mapping[str, JobStatus]) -> set[str]:
        """Write the files of all nodes; return the jobs that have used a GPU by these files."""
        if self.silent:
            return set()
        steady_s, now_s = self.clock.steady_s, self.clock.now_s
        files: dict[str, dict[RunId, NodeUse]] = {}
        uses: dict[tuple[str, Run], Use] = {}
        computes: set[str] = set()
        for key, job in jobs.items():
            if job.state is not JobState.RUNNING or job.start_s is None:
                continue
            run, busy_in_all, since = (key, job.start_s), 0, []
            for node in sorted(job.allocation):
                gpus = job.allocation[node].gpu_count
                busy = 0 if key in self.idle else gpus
                if key in self.partly - self.idle:
                    busy = int(not busy_in_all)
                use = uses[node, run] = self._uses.get((node, run)) or Use(steady_s, steady_s)
                if busy:
                    use.idle_since_s, use.has_been_busy = steady_s, True
                busy_in_all += busy
                since.append(use.idle_since_s)
                files.setdefault(node, {})[RunId(job.raw_id, job.restarts, node)] = NodeUse(
                    now_s,
                    busy,
                    None if busy else now_s - (steady_s - use.idle_since_s),
                    steady_s - use.first_s,
                    float(use.has_been_busy),
                )
                if use.has_been_busy:
                    computes.add(key)
            idle_since_s = None if busy_in_all else max(since)
            before_s = self._before_s.setdefault(run, self.unused_s.get(key, 0.0))
            if idle_since_s is None:
                self._before_s[run] = self.unused_s[key] = 0.0
            else:
                # A sampler that has restarted does not know how long its GPUs had been idle.
                self.unused_s[key] = before_s + steady_s - idle_since_s
            self.told[run] = Told(steady_s, busy_in_all, idle_since_s)
        self._uses = uses
        for path in (self.collect / FOLDER).iterdir():
            path.unlink()
        for node, told in files.items():
            (self.collect / FOLDER / f"{node}{SUFFIX}").write_bytes(text_of(told, now_s))
        return computes
