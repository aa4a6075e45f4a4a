"""How far a comparison depends on what is drawn: the same policies on many seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Record = Mapping[str, Any]
"""One policy's figures on one seed (``report.records``)."""

RATIOS = ("avg_jct", "median_jct", "p95_jct")
"""The figures of ``over_reference`` that are summarized."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of a figure over all seeds, and its smallest and largest value."""

    median: float
    least: float
    most: float


def spreads(seeds: Sequence[Sequence[Record]]) -> dict[str, dict[str, Spread | None]]:
    """Return by policy the spread of its completion times as multiples of the reference's, and of
    the share of GPU time in which work was done again.

    ``seeds`` has the records of every seed, with the same policies in the same order. A spread is
    None if the reference's figure was zero on some seed.
    """
    found: dict[str, dict[str, Spread | None]] = {}
    for of_policy in zip(*seeds, strict=True):
        figures = {name: [one["over_reference"][name] for one in of_policy] for name in RATIOS}
        figures["again_share"] = [one["again_share"] for one in of_policy]
        found[of_policy[0]["policy"]] = {
            name: None if None in one else Spread(statistics.median(one), min(one), max(one))
            for name, one in figures.items()
        }
    return found
