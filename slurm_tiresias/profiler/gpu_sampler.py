"""The sampler on a compute node: it periodically samples what profiled jobs do with their GPUs.

The SPANK plugin keeps a file for every profiled run on its node, from prolog to epilog, and makes
the job's user its owner. So the names of these files say which jobs are profiled, and their owners
say whose processes are trusted. A GPU belongs to a job if one of the job's processes computes on
it. GPU indices are not used, since they depend on the process that asks.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from slurm_tiresias.profiler.gpu_runs import MOST_GPUS, GpuSums, file_text
from slurm_tiresias.profiler.gpu_use import gpus_at_work
from slurm_tiresias.profiler.node_folders import write_as_root_or_owner
from slurm_tiresias.profiler.processes import Claim, claim_of
from slurm_tiresias.profiler.run_id import (
    GPUS_KIND,
    TRAFFIC_KIND,
    RunId,
    parsed_file_name,
)
from slurm_tiresias.warn_once import WarnOnce

log = logging.getLogger("tiresias-slurm")

MOST_UNWRITTEN = 1000
"""Most runs whose files are waiting to be written; beyond that the oldest are dropped."""


class Sampler:
    """Samples the GPUs of profiled jobs, and writes a file for each job once it is over."""

    def __init__(self, run_dir: Path, collect_dir: Path) -> None:
        self._run_dir = run_dir
        self._collect_dir = collect_dir
        self._sums: dict[RunId, dict[str, GpuSums]] = {}
        self._warning = WarnOnce("what jobs do with their GPUs cannot be kept for now")
        self._has_driver = True

    def tick(self, now_s: float) -> None:
        """Sample every job once, and write the files of jobs that are over."""
        try:
            owners = profiled(self._run_dir)
            if owners:
                self._sample(owners, now_s)
            self._write_all_but(owners)
        except OSError as error:
            self._warning.warn(error)
        else:
            self._warning.clear()

    def _sample(self, owners: Mapping[RunId, int], now_s: float) -> None:
        gpus = gpus_at_work()
        has_driver = gpus is not None
        if has_driver != self._has_driver:
            absent = "without NVML (nvidia-ml-py and the driver) nothing is sampled"
            log.warning("NVML is there again" if has_driver else absent)
        self._has_driver = has_driver
        jobs = _by_claim(owners)
        for gpu in gpus or ():
            uuid = gpu.use.uuid
            if uuid is None:
                continue  # lost this very moment
            # A GPU shared by several profiled runs counts for each of them.
            claims = {claim_of(pid) for pid in gpu.pids}
            for run_id in {run_id for claim in claims if claim for run_id in jobs.get(claim, ())}:
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


# Who is profiled


def profiled(run_dir: Path) -> dict[RunId, int]:
    """Return the runs profiled on this node, and the uid of each."""
    owners = {}
    with os.scandir(run_dir) as entries:
        for entry in entries:
            named = parsed_file_name(entry.name)
            if named is None or named[1] != TRAFFIC_KIND:
                continue
            with suppress(FileNotFoundError):
                owners[named[0]] = entry.stat(follow_symlinks=False).st_uid
    return owners


Jobs = Mapping[Claim, list[RunId]]


def _by_claim(owners: Mapping[RunId, int]) -> Jobs:
    """Return the runs by what their processes must claim. Of several runs of a job on a node only
    the latest counts: after a crash of the node, files of earlier runs may remain."""
    latest: dict[tuple[Claim, str], RunId] = {}
    for run_id in sorted(owners):
        claim = Claim(run_id.job_id, owners[run_id])
        latest[claim, run_id.node] = run_id
    jobs: dict[Claim, list[RunId]] = {}
    for (claim, _), run_id in latest.items():
        jobs.setdefault(claim, []).append(run_id)
    return jobs
