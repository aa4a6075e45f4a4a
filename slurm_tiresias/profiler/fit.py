"""PACKLIMIT from experience: the cut in skew that best tells whom spreading slowed down.

The paper re-fits its limit from time to time with a linear classifier on how past jobs fared in
either placement (page 491). With one number to go by, such a classifier is a cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

WORTH_CONSOLIDATING = 1.05
"""A model gains from being consolidated if that makes it faster by this factor: less is noise."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A model that was seen in both placements: its skew, and its speed on few nodes over that on
    many."""

    skew: float
    gain: float

    @property
    def gains(self) -> bool:
        return self.gain >= WORTH_CONSOLIDATING


def fitted_pack_limit(pairs: Sequence[Pair], prior: float, least_pairs: int) -> float:
    """The limit that puts the fewest models on the wrong side; ``prior`` where it is as good.

    The prior also stands while there are fewer than ``least_pairs``, or all of them say the same:
    then nothing is known about where the one kind ends and the other begins.
    """
    labels = {pair.gains for pair in pairs}
    if not least_pairs or len(pairs) < least_pairs or len(labels) < 2:
        return prior
    skews = sorted({pair.skew for pair in pairs})
    between = [(low + high) / 2 for low, high in pairwise(skews)]
    cuts = [prior, *sorted(between, key=lambda cut: abs(cut - prior))]
    return min(cuts, key=lambda cut: sum((pair.skew > cut) != pair.gains for pair in pairs))
