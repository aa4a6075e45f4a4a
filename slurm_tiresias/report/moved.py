"""Service moved by preemptions: what preemptors ran on the GPUs while their victims waited."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise


@dataclass(frozen=True, slots=True)
class VacatedGpus:
    """GPUs that a victim left for a preemptor.

    ``again_s`` is when the victim ran again, or ended without; infinity if it has done neither. The
    preemptor ran from ``for_start_s`` to ``for_end_s`` on ``for_gpus``.
    """

    gpus: int
    again_s: float
    for_job: str
    for_gpus: int
    for_start_s: float
    for_end_s: float


def moved_gpu_s(vacated: Sequence[VacatedGpus], until_s: float) -> list[float]:
    """Return the GPU-seconds that each victim gave to its preemptor by ``until_s``.

    The total is at most what the preemptor used; several victims share it by their GPUs.
    """
    found = [0.0] * len(vacated)
    order = sorted(range(len(vacated)), key=lambda i: (vacated[i].for_job, vacated[i].for_start_s))
    for _, group in groupby(order, key=lambda i: (vacated[i].for_job, vacated[i].for_start_s)):
        places = list(group)
        for place, gpu_s in zip(
            places, _shared([vacated[i] for i in places], until_s), strict=True
        ):
            found[place] = gpu_s
    return found


def _shared(vacated: Sequence[VacatedGpus], until_s: float) -> Iterable[float]:
    """Return the same for GPUs that were all freed for one run of one preemptor."""
    start_s, end_s = vacated[0].for_start_s, min(vacated[0].for_end_s, until_s)
    given = [0.0] * len(vacated)
    changes_s = {min(max(one.again_s, start_s), end_s) for one in vacated}
    for from_s, to_s in pairwise(sorted({start_s, end_s, *changes_s})):
        empty = [i for i, one in enumerate(vacated) if one.again_s > from_s]
        left = sum(vacated[i].gpus for i in empty)
        used = min(left, vacated[0].for_gpus)
        for i in empty:
            given[i] += (to_s - from_s) * used * vacated[i].gpus / left if left else 0.0
    return given if math.isfinite(end_s) and end_s > start_s else [0.0] * len(vacated)
