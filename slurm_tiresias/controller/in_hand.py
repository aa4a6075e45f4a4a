"""Which job a cycle works on: after an error of this program, that job is suspected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from slurm_tiresias.core.job import Job

T = TypeVar("T")


class InHand:
    """The job in hand, told by the loops over jobs; it costs each 0.7 ms for 10,000 jobs."""

    def __init__(self) -> None:
        self._item: object = None

    def each(self, jobs: Iterable[T]) -> Iterator[T]:
        """Yield jobs, each in hand until the next one. Do not leave the loop but by an error.

        They are job ids, objects with the job's ``key``, ``Job``, or pairs that begin with one.
        """
        before = self._item
        for job in jobs:
            self._item = job
            yield job
        # Not after an error: then the job stays in hand.
        self._item = before

    def clear(self) -> None:
        self._item = None

    @property
    def key(self) -> str:
        """The id of the job in hand; "" for none."""
        item = self._item[0] if isinstance(self._item, tuple) else self._item
        if isinstance(item, Job):
            return item.job_id
        return item if isinstance(item, str) else str(getattr(item, "key", ""))
