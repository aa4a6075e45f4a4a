"""How much service preemptions moved: what preemptors ran on GPUs while those who left waited."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise


@dataclass(frozen=True, slots=True)
class Seat:
    """GPUs that one job left for another.

    ``again_s`` is when the one who left ran again, or ended without; infinity: not yet. The other
    ran from ``for_start_s`` to ``for_end_s`` on ``for_gpus``.
    """

    gpus: int
    again_s: float
    for_job: str
    for_gpus: int
    for_start_s: float
    for_end_s: float


def moved_gpu_s(seats: Sequence[Seat], until_s: float) -> list[float]:
    """Of each seat, the service that it gave to the other job by ``until_s``.

    That is no more than the other job used: what several left for one is shared by their GPUs.
    """
    found = [0.0] * len(seats)
    order = sorted(range(len(seats)), key=lambda i: (seats[i].for_job, seats[i].for_start_s))
    for _, group in groupby(order, key=lambda i: (seats[i].for_job, seats[i].for_start_s)):
        places = list(group)
        for place, gpu_s in zip(places, _shared([seats[i] for i in places], until_s), strict=True):
            found[place] = gpu_s
    return found


def _shared(seats: Sequence[Seat], until_s: float) -> Iterable[float]:
    """The same of seats that were left for one run of one job."""
    start_s, end_s = seats[0].for_start_s, min(seats[0].for_end_s, until_s)
    given = [0.0] * len(seats)
    changes_s = {min(max(seat.again_s, start_s), end_s) for seat in seats}
    for from_s, to_s in pairwise(sorted({start_s, end_s, *changes_s})):
        empty = [i for i, seat in enumerate(seats) if seat.again_s > from_s]
        left = sum(seats[i].gpus for i in empty)
        used = min(left, seats[0].for_gpus)
        for i in empty:
            given[i] += (to_s - from_s) * used * seats[i].gpus / left if left else 0.0
    return given if math.isfinite(end_s) and end_s > start_s else [0.0] * len(seats)
