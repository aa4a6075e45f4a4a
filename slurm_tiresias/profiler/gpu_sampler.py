"""The sampler on a compute node: it periodically samples the GPU use of profiled jobs.

The SPANK plugin keeps a file for every profiled run on its node, from prolog to epilog, and makes
the job's user its owner. So the names of these files say which jobs are profiled, and their owners
say whose processes are trusted. A GPU belongs to a job if one of the job's processes computes on
it. GPU indices are not used, since they depend on the process that asks.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from slurm_tiresias.profiler.gpu_activity import GpuActivity, SampledGpu
from slurm_tiresias.profiler.gpu_runs import MOST_GPUS, GpuSums, file_text
from slurm_tiresias.profiler.gpu_use import GpuAtWork, gpus_at_work
from slurm_tiresias.profiler.gpu_use_folder import ROOT, GpuUseWriter
from slurm_tiresias.profiler.node_folders import write_as_root_or_owner
from slurm_tiresias.profiler.processes import ProcessOwner, confined_to, owner_of
from slurm_tiresias.profiler.run_id import (
    GPUS_KIND,
    OUTPUT_KIND,
    PROGRESS_KIND,
    TRAFFIC_KIND,
    RunId,
    parsed_file_name,
)
from slurm_tiresias.warn_once import WarnOnce

log = logging.getLogger("tiresias-slurm")

MOST_UNWRITTEN = 1000
"""Most runs whose files are waiting to be written; beyond that the oldest are dropped."""


class Sampler:
    """Samples the GPUs of profiled jobs, and writes a file for each job when it ends. If the
    controller wants to know, it also reports which GPUs of any job are busy."""

    def __init__(self, run_dir: Path, collect_dir: Path, every_s: float = 10.0) -> None:
        self._run_dir = run_dir
        self._collect_dir = collect_dir
        self._sums: dict[RunId, dict[str, GpuSums]] = {}
        self._warning = WarnOnce("what jobs do with their GPUs cannot be kept for now")
        self._has_driver = True
        self._activity = GpuActivity(every_s)
        self._writer = GpuUseWriter(collect_dir)

    def tick(self, now_s: float, wall_s: float | None = None) -> None:
        """Sample every job once, write the files of jobs that have ended, and report which GPUs are
        busy; ``now_s`` is by a steady clock, ``wall_s`` is Unix time."""
        try:
            owners = profiled(self._run_dir)
            is_wanted = wall_s is not None and self._writer.is_wanted()
            watched = runs_of(self._run_dir) if is_wanted else {}
            gpus = self._at_work() if owners or watched else []
            self._add(owners, gpus or (), now_s)
            self._write_all_but(owners)
            if gpus is None or wall_s is None or not is_wanted:
                # Without samples nothing is reported, and earlier reports soon become too old.
                self._activity.forget()
            else:
                self._activity.take(watched, _whose(gpus, watched), now_s)
                self._writer.tell(self._activity, now_s, wall_s)
        except OSError as error:
            self._warning.warn(error)
        else:
            self._warning.clear()

    def _at_work(self) -> list[GpuAtWork] | None:
        gpus = gpus_at_work()
        has_driver = gpus is not None
        if has_driver != self._has_driver:
            absent = "without NVML (nvidia-ml-py and the driver) nothing is sampled"
            log.warning("NVML is available again" if has_driver else absent)
        self._has_driver = has_driver
        return gpus

    def _add(self, owners: Mapping[RunId, int], gpus: Iterable[GpuAtWork], now_s: float) -> None:
        jobs = _by_owner(owners)
        for gpu in gpus:
            uuid = gpu.use.uuid
            if uuid is None:
                continue  # lost at this very moment
            # A GPU shared by several profiled runs counts for each of them.
            found = {owner_of(pid) for pid in gpu.pids}
            for run_id in {run_id for owner in found if owner for run_id in jobs.get(owner, ())}:
                sums = self._sums.setdefault(run_id, {})
                if uuid in sums or len(sums) < MOST_GPUS:
                    sums.setdefault(uuid, GpuSums(uuid, now_s)).add(gpu.use, now_s)

    def _write_all_but(self, running: Iterable[RunId]) -> None:
        """Write the files of finished runs; if one cannot be written, retry at the next tick."""
        over = sorted(self._sums.keys() - set(running))
        for run_id in over[:-MOST_UNWRITTEN]:
            del self._sums[run_id]
        for run_id in over[-MOST_UNWRITTEN:]:
            text = file_text(sums.run() for sums in self._sums[run_id].values())
            path = self._collect_dir / run_id.file_name(GPUS_KIND)
            write_as_root_or_owner(path, text.encode())
            del self._sums[run_id]


# Profiled runs


def profiled(run_dir: Path) -> dict[RunId, int]:
    """Return the runs profiled on this node, and the uid of each."""
    return runs_of(run_dir, (TRAFFIC_KIND,))


def runs_of(
    run_dir: Path, kinds: Collection[str] = (TRAFFIC_KIND, PROGRESS_KIND, OUTPUT_KIND)
) -> dict[RunId, int]:
    """Return the runs on this node that have a file of any of these kinds, and the uid of each."""
    owners = {}
    with os.scandir(run_dir) as entries:
        for entry in entries:
            named = parsed_file_name(entry.name)
            if named is None or named[1] not in kinds:
                continue
            with suppress(FileNotFoundError):
                owners[named[0]] = entry.stat(follow_symlinks=False).st_uid
    return owners


Jobs = Mapping[ProcessOwner, list[RunId]]


def _by_owner(owners: Mapping[RunId, int]) -> Jobs:
    """Return the runs by the owner that their processes must have. If a job has several runs on a
    node, only the latest counts: after a crash of the node, files of earlier runs may remain."""
    latest: dict[tuple[ProcessOwner, str], RunId] = {}
    for run_id in sorted(owners):
        owner = ProcessOwner(run_id.job_id, owners[run_id])
        latest[owner, run_id.node] = run_id
    jobs: dict[ProcessOwner, list[RunId]] = {}
    for (owner, _), run_id in latest.items():
        jobs.setdefault(owner, []).append(run_id)
    return jobs


def _whose(gpus: Iterable[GpuAtWork], owners: Mapping[RunId, int]) -> list[SampledGpu]:
    """Return the runs that each GPU with processes belongs to, by their cgroups or else by
    their owners."""
    jobs = _by_owner(owners)
    by_id: dict[int, set[RunId]] = {}
    for runs in jobs.values():
        for run_id in runs:
            by_id.setdefault(run_id.job_id, set()).add(run_id)
    sampled = []
    for gpu in gpus:
        found: set[RunId] | None = set()
        for pid in gpu.pids:
            runs_there = _runs_of_process(pid, jobs, by_id)
            found = None if found is None or runs_there is None else found | runs_there
        use = gpu.use
        sampled.append(SampledGpu(use.uuid or "", use.utilization, found, use.power))
    return sampled


def _runs_of_process(pid: int, jobs: Jobs, by_id: Mapping[int, set[RunId]]) -> set[RunId] | None:
    """Return the runs of a process; None if it may belong to any job: it is in no job's cgroup,
    and its owner is unknown or cannot be trusted because it is gone or runs as root, as in a
    container."""
    job_id = confined_to(pid)
    if job_id is not None:
        return by_id.get(job_id, set())
    owner = owner_of(pid)
    if owner is None or (owner.uid == ROOT and owner not in jobs):
        return None
    return set(jobs.get(owner, ()))
