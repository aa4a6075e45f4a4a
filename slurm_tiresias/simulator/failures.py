"""Failures of nodes: each ends the runs on the node, and loses what they have not saved.

A job on more nodes fails more often. The node is replaced at once.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

NAMED: Final[Mapping[str, float]] = {"meta": 6.5, "meta-rsc-2": 2.34}
"""Failures per 1,000 node-days of two clusters of 8-GPU nodes, RSC-1 and RSC-2 (Kokolis et al.,
HPCA 2025, arXiv 2410.21680)."""

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class FailureModel:
    """How often nodes fail."""

    per_1000_node_days: float
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.per_1000_node_days:g} per 1,000 node-days"

    def failures(self, nodes: Sequence[str], since_s: float) -> Iterator[tuple[float, str]]:
        """Yield the time and the node of each failure, without end."""
        drawn = random.Random(f"failures:{self.seed}")
        rate = self.per_1000_node_days / 1000.0 / DAY_S * len(nodes)
        while True:
            since_s += drawn.expovariate(rate)
            yield since_s, drawn.choice(nodes)
