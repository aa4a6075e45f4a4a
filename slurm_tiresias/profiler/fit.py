"""Fit PACKLIMIT to experience: find the skew that best separates the models that spreading slows
down.

The paper re-fits its limit from time to time with a linear classifier on how past jobs performed
in either placement (page 491). With a single feature, such a classifier is a threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

WORTH_CONSOLIDATING = 1.05
"""Least speedup for which consolidating a model counts as a gain; less is noise."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A model seen in both placements: its skew, and its speed consolidated relative to spread."""

    skew: float
    gain: float

    @property
    def gains(self) -> bool:
        return self.gain >= WORTH_CONSOLIDATING


LEAST_PAIRS = 10
"""As many models as the paper fits its limit to."""


def fitted_pack_limit(pairs: Sequence[Pair], prior: float, least_pairs: int = LEAST_PAIRS) -> float:
    """Return the limit that misclassifies the fewest models; ``prior`` if no other limit is better.

    The prior is also kept if there are fewer than ``least_pairs`` or if all models gain, or none:
    then the data does not show where to separate them.
    """
    labels = {pair.gains for pair in pairs}
    if len(pairs) < least_pairs or len(labels) < 2:
        return prior
    skews = sorted({pair.skew for pair in pairs})
    between = [(low + high) / 2 for low, high in pairwise(skews)]
    cuts = [prior, *sorted(between, key=lambda cut: abs(cut - prior))]
    return min(cuts, key=lambda cut: sum((pair.skew > cut) != pair.gains for pair in pairs))
