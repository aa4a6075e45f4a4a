"""Run times and service of ended jobs, from which policies based on history learn."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.records import Sample
from slurm_tiresias.store.tables import SAMPLES

SETTLED_AFTER_S = 3600.0
"""Older jobs are not read again: accounting corrects a job for 15 minutes after its end."""


class Samples:
    """The latest samples. Reading all takes 0.4 s: once, then only new ones."""

    def __init__(self, ledger: Ledger, meanwhile: Callable[[], None] = lambda: None) -> None:
        """``meanwhile`` is called repeatedly while samples are read."""
        self._ledger = ledger
        self._meanwhile = meanwhile
        self._known: list[Sample] = []
        self._read_s = -math.inf

    def latest(self, now_s: float) -> Sequence[Sample]:
        """Return the samples, oldest first; ``now_s`` is by Slurm's clock."""
        since_s = min(self._read_s, now_s) - SETTLED_AFTER_S
        settled = [sample for sample in self._known if sample.ended_s < since_s]
        new = self._ledger.samples.since(since_s, self._meanwhile)
        self._known = [*settled, *new][-(SAMPLES.most_rows or 0) :]
        self._read_s = now_s
        return self._known
