"""When one job would start, as it is and if it asked for less."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import NamedTuple

from slurm_tiresias.core.job import Job
from slurm_tiresias.forecast.forecaster import spread_in
from slurm_tiresias.forecast.futures import Change, Drawn, Futures
from slurm_tiresias.forecast.ranges import Calibration, Range
from slurm_tiresias.model import ANY_TYPE, Amount, Request

AS_IT_IS, GPUS, LIMIT, PARTITION, REPORTS = "as-it-is", "gpus", "limit", "partition", "reports"

MOST_S = 0.8
"""How long the answer to one question is computed, by the clock."""

CPU_S = 0.15
"""CPU time of one future at most."""

FUTURES, LEAST_FUTURES = 16, 6
LIMITS_S = (3600.0, 4 * 3600.0, 86400.0)
MOST_PARTITIONS = 3


class Asked(NamedTuple):
    """A job that is not submitted. Its user, name and partition are untrusted."""

    user: str
    name: str = ""
    gpus: int = 1
    gpu_type: str = ANY_TYPE
    nodes: int = 0
    """How many nodes have ``gpus`` each; 0 if any nodes may have them."""
    partition: str = ""
    limit_s: float = 0.0
    """0 if it has none."""

    def as_job(self, now_s: float, partitions: tuple[str, ...]) -> Job:
        at_once = self.gpus if self.nodes else 1
        request = Request(
            Amount({self.gpu_type: at_once}),
            chunks=self.nodes or self.gpus,
            max_chunks_per_node=1 if self.nodes else None,
            partitions=(self.partition,) if self.partition else partitions,
        )
        return Job(
            "asked",
            request,
            user=self.user,
            name=self.name,
            submitted_s=now_s,
            queued_s=now_s,
            settled_s=now_s,
            time_limit_s=self.limit_s or None,
        )


class Answer(NamedTuple):
    """When a job would start if one thing about it were different: its ``what`` were ``value``."""

    what: str
    value: str
    range: Range | None
    """None where it is not known how far such ranges hold."""
    until_s: float
    """The futures were followed for so long."""


def answers(
    made: Futures, job: Job, calibration: Calibration, partitions: tuple[str, ...]
) -> list[Answer]:
    """Return when a job starts as it is, and then what would make that sooner.

    All variants are run through the same futures, as many as there is time for.
    """
    variants = [(AS_IT_IS, "", job), *_variants(job, partitions)]
    drawn: list[list[Drawn]] = [[] for _ in variants]
    until_s = time.monotonic() + MOST_S
    for number in range(FUTURES):
        forks = [
            made.begin(f"{number}", CPU_S, [job.job_id], _submits(variant, what))
            for what, _, variant in variants
        ]
        for fork, of_variant in zip(forks, drawn, strict=True):
            if one := fork.result():
                of_variant.append(one)
        if time.monotonic() >= until_s and number + 1 >= LEAST_FUTURES:
            break
    return [
        Answer(
            what,
            value,
            None
            if calibration.is_bad
            else calibration.corrected(spread_in(job.job_id, of_variant)),
            min(one.until_s for one in of_variant),
        )
        for (what, value, _), of_variant in zip(variants, drawn, strict=True)
        if len(of_variant) >= LEAST_FUTURES
    ]


def _submits(job: Job, what: str) -> Change:
    def change(made: Futures) -> None:
        made.submit(job)
        if what == REPORTS:
            made.reporting.add(job.job_id)

    return change


def _variants(job: Job, partitions: tuple[str, ...]) -> Iterator[tuple[str, str, Job]]:
    request = job.request
    gpus = request.gpu_count
    for fewer in (gpus // 2, gpus // 4):
        if fewer:
            yield GPUS, str(fewer), _with(job, _of_gpus(request, fewer))
    shorter = [s for s in LIMITS_S if s < (job.time_limit_s or math.inf)]
    if shorter:
        other = copy(job)
        other.time_limit_s = shorter[-1]
        yield LIMIT, repr(shorter[-1]), other
    for name in [name for name in partitions if name not in request.partitions][:MOST_PARTITIONS]:
        yield PARTITION, name, _with(job, replace(request, partitions=(name,)))
    if job.claim is None and job.run_s > 0.0:
        yield REPORTS, "", job


def _of_gpus(request: Request, gpus: int) -> Request:
    """Return the request for fewer GPUs: of fewer nodes, or of fewer on one node."""
    if request.chunks > 1:
        return replace(request, chunks=max(1, gpus // max(1, request.chunk.gpu_count)), min_nodes=1)
    chunk = dict.fromkeys(request.chunk.gpus, gpus)
    return replace(request, chunk=replace(request.chunk, gpus=chunk))


def _with(job: Job, request: Request) -> Job:
    other = copy(job)
    other.request = request
    other.count_gpus()
    return other
