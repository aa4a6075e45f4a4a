"""The skew of a model, and the placement it asks for (paper pages 491-492 and 500).

The paper publishes no formula of its skew. The one figure that it prints for each model is the
share of the largest tensor in the model's size (Table 6, page 500), so that is the number here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slurm_tiresias.model import PlacementStyle

MB = 1 << 20
"""The paper's megabyte: VGG's largest tensor, 25,088 x 4,096 floats, is its 392.0 MB."""

BUCKET_BYTES = 25 * MB
FIRST_BUCKET_BYTES = 1 * MB
"""How data-parallel training in PyTorch coalesces gradients unless told otherwise; its first
bucket is small, so that sending can begin early."""


@dataclass(frozen=True, slots=True)
class Skew:
    """The pieces that a model sends in one iteration: how large the largest is, and all of them."""

    largest_bytes: int
    total_bytes: int
    pieces: int

    @property
    def ratio(self) -> float:
        """The share of the largest piece, above 0 and at most 1."""
        return self.largest_bytes / self.total_bytes


def skew_of(sizes_bytes: Iterable[int]) -> Skew | None:
    """The skew of a list of sizes; None where there is nothing in it. No size may be negative."""
    sizes = [size for size in sizes_bytes if size]
    if any(size < 0 for size in sizes):
        raise ValueError("a size is negative")
    return Skew(max(sizes), sum(sizes), len(sizes)) if sizes else None


@dataclass(frozen=True, slots=True)
class Limits:
    """From where on a model is skewed: ``pack_limit`` is a share, ``least_bytes`` a size."""

    pack_limit: float
    least_bytes: float


def style_for(skew: Skew, limits: Limits) -> PlacementStyle:
    """Consolidate a model with a piece that is a large part of it, and large in itself.

    The size counts because messages may be coalesced: a small model whose gradients all travel in
    one bucket looks as skewed as can be, and is not. A bucket is closed once it is full, so one of
    small tensors stays below twice its nominal size; whatever is larger holds a large tensor.
    """
    skewed = skew.ratio > limits.pack_limit and skew.largest_bytes >= limits.least_bytes
    return PlacementStyle.CONSOLIDATE if skewed else PlacementStyle.SPREAD


def in_buckets(sizes_bytes: Sequence[int], bucket_bytes: int = BUCKET_BYTES) -> list[int]:
    """The messages of data-parallel training for these gradients, given in order of the layers.

    Gradients come in the reverse order. One at a time is put in the bucket, which is sent once it
    holds its nominal size: no tensor is ever split.
    """
    buckets: list[int] = []
    filled, full = 0, min(FIRST_BUCKET_BYTES, bucket_bytes)
    for size in reversed(sizes_bytes):
        filled += size
        if filled >= full:
            buckets.append(filled)
            filled, full = 0, bucket_bytes
    return [*buckets, filled] if filled else buckets
