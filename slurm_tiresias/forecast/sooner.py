"""When one job would start, as it is and if it asked for less."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import NamedTuple

from slurm_tiresias.core.job import Job
from slurm_tiresias.forecast.futures import Drawn, Futures
from slurm_tiresias.forecast.ranges import Calibration, Range
from slurm_tiresias.model import ANY_TYPE, Amount, Request

AS_IT_IS, GPUS, LIMIT, PARTITION, REPORTS = "as-it-is", "gpus", "limit", "partition", "reports"

MOST_S = 0.8
"""How long the answer to one question is computed, by the clock."""

CPU_S = 0.12
"""CPU time of one future at most."""

FUTURES, LEAST_FUTURES, AT_ONCE = 12, 8, 2
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
    """None if too few of the latest ranges have held."""


def answers(
    made: Futures, job: Job, calibration: Calibration, partitions: tuple[str, ...]
) -> list[Answer]:
    """Return when a job starts as it is, and then what would make that sooner; nothing if too
    little is known of the site.

    All variants pass through the same futures, as many as there is time for: each takes its place
    in the queue, and leaves as soon as it has started.
    """
    variants = [(AS_IT_IS, "", job), *_variants(job, partitions)]
    for number, (_, _, variant) in enumerate(variants[1:]):
        variant.job_id = f"{job.job_id} {number}"

    def submit_all(future: Futures) -> None:
        for what, _, variant in variants:
            if variant.job_id not in future.jobs:
                future.submit_in_passing(variant, reports=what == REPORTS)

    keys = [variant.job_id for _, _, variant in variants]
    drawn = list[Drawn]()
    until_s = time.monotonic() + MOST_S
    for number in range(0, FUTURES if made.past.is_known else 0, AT_ONCE):
        numbers = range(number, number + AT_ONCE)
        forks = [made.begin(f"{each}", CPU_S, keys, submit_all) for each in numbers]
        drawn += [one for fork in forks if (one := fork.result())]
        if len(drawn) >= LEAST_FUTURES and time.monotonic() >= until_s:
            break
    if len(drawn) < LEAST_FUTURES:
        return []
    found = [calibration.corrected(made.spread_in(drawn, key)) for key in keys]
    is_bad = calibration.is_bad
    return [
        Answer(what, value, None if is_bad else one)
        for (what, value, _), one in zip(variants, found, strict=True)
    ]


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
        yield REPORTS, "", copy(job)


def _of_gpus(request: Request, gpus: int) -> Request:
    """Return the request for fewer GPUs: of fewer nodes, or of fewer on one node."""
    chunks = gpus // max(1, request.chunk.gpu_count)
    if chunks:
        return replace(request, chunks=chunks, min_nodes=1)
    chunk = dict.fromkeys(request.chunk.gpus, gpus)
    return replace(request, chunk=replace(request.chunk, gpus=chunk), chunks=1, min_nodes=1)


def _with(job: Job, request: Request) -> Job:
    other = copy(job)
    other.request = request
    other.count_gpus()
    return other
