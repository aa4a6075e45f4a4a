"""The course of the cluster since the controller started, in a bounded number of samples."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from slurm_tiresias.status.published import PublishedState

MOST_SAMPLES = 512
FIRST_GAP_S = 1.0


@dataclass(frozen=True, slots=True)
class Sample:
    """The cluster after one cycle: waiting jobs, the GPUs they request, and who holds GPUs.

    ``running_gpus`` is by tier.
    """

    at_s: float
    waiting_jobs: int
    waiting_gpus: int
    running_gpus: tuple[int, ...]
    other_gpus: int


class Samples:
    """The samples since the start, oldest first.

    When there are too many, every second one is dropped and the interval doubled.
    """

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque()
        self._gap_s = FIRST_GAP_S

    def follow(self, state: PublishedState) -> None:
        """Take a sample of this state if the interval is over."""
        if not state.cycle or state.failures:
            return
        last_s = self._samples[-1].at_s if self._samples else None
        if last_s is not None and 0 <= state.at_s - last_s < self._gap_s:
            return
        self._samples.append(_sample(state))
        if len(self._samples) > MOST_SAMPLES:
            self._samples = deque(list(self._samples)[::2])
            self._gap_s *= 2

    @property
    def samples(self) -> tuple[Sample, ...]:
        return tuple(self._samples)


def _sample(state: PublishedState) -> Sample:
    return Sample(
        at_s=state.at_s,
        waiting_jobs=sum(tier.pending_jobs for tier in state.tiers),
        waiting_gpus=sum(tier.pending_gpus for tier in state.tiers),
        running_gpus=tuple(tier.running_gpus for tier in state.tiers),
        other_gpus=state.gpus.others,
    )
