"""The skew of a model, and the placement it calls for (paper pages 491-492 and 500).

The paper publishes no formula of skew. The one figure that it prints for each model is the largest
tensor's share of the model's size (Table 6, page 500), so that is the definition used here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slurm_tiresias.model import PlacementStyle

MB = 1 << 20
"""The paper's megabyte: VGG's largest tensor, 25,088 x 4,096 floats, is its 392.0 MB."""

BUCKET_BYTES = 25 * MB
FIRST_BUCKET_BYTES = 1 * MB
"""PyTorch's default size of the first gradient bucket in data-parallel training, small so that
sending can begin early."""


@dataclass(frozen=True, slots=True)
class Skew:
    """What a model sends in one iteration: the largest piece, the total, the number of pieces."""

    largest_bytes: int
    total_bytes: int
    pieces: int

    @property
    def ratio(self) -> float:
        """The largest piece's share of the total, above 0 and at most 1."""
        return self.largest_bytes / self.total_bytes


def skew_of(sizes_bytes: Iterable[int]) -> Skew | None:
    """Return the skew of a list of sizes, none negative; None if their sum is 0."""
    sizes = [size for size in sizes_bytes if size]
    if any(size < 0 for size in sizes):
        raise ValueError("a size is negative")
    return Skew(max(sizes), sum(sizes), len(sizes)) if sizes else None


LEAST_SKEWED_BYTES = 2 * BUCKET_BYTES
"""The least size of the largest piece of a skewed model. Messages may be coalesced: a small model
whose gradients all fit one bucket has the highest skew, but is not skewed. A bucket is closed once
it is full, so one of small tensors is smaller than this."""


def style_for(skew: Skew, pack_limit: float) -> PlacementStyle:
    """Return the style: consolidate if the largest piece is both a large share, above
    ``pack_limit``, and large in itself."""
    skewed = skew.ratio > pack_limit and skew.largest_bytes >= LEAST_SKEWED_BYTES
    return PlacementStyle.CONSOLIDATE if skewed else PlacementStyle.SPREAD


def in_buckets(sizes_bytes: Sequence[int], bucket_bytes: int = BUCKET_BYTES) -> list[int]:
    """Return the message sizes of data-parallel training for gradients given in layer order.

    Gradients arrive in reverse order. Each is added to the bucket, which is sent once it reaches
    its nominal size; no tensor is split.
    """
    buckets: list[int] = []
    filled, full = 0, min(FIRST_BUCKET_BYTES, bucket_bytes)
    for size in reversed(sizes_bytes):
        filled += size
        if filled >= full:
            buckets.append(filled)
            filled, full = 0, bucket_bytes
    return [*buckets, filled] if filled else buckets
