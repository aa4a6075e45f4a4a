"""What the readers of all formats share.

The files come from any user. A reader trusts no length before it has checked it against the file's
size, and no count before it has checked it against a bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from slurm_tiresias.errors import UsageError

MOST_TENSORS = 1_000_000
MOST_DIMENSIONS = 64
MOST_NAME_CHARACTERS = 1024
MOST_ELEMENTS = 1 << 50


class ModelFileError(UsageError):
    """A file is damaged, or in a format that is not supported."""


class Unreadable(Exception):  # noqa: N818 - it never leaves this package
    """What a reader found wrong; ``read`` adds the file's name and the remedy."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a file. The name is untrusted: sanitize it before printing."""

    name: str
    shape: tuple[int, ...]
    size_bytes: int


def checked_shape(dimensions: Iterable[object]) -> tuple[int, ...]:
    """Return the shape after checks: non-negative integers, not too many and not too large."""
    shape: list[int] = []
    for dimension in dimensions:
        if not isinstance(dimension, int) or isinstance(dimension, bool) or dimension < 0:
            raise Unreadable("a tensor has a dimension that is not a whole number of at least 0")
        shape.append(dimension)
        if len(shape) > MOST_DIMENSIONS:
            raise Unreadable(f"a tensor has more than {MOST_DIMENSIONS} dimensions")
    if any(dimension > MOST_ELEMENTS for dimension in shape) or prod(shape) > MOST_ELEMENTS:
        raise Unreadable("a tensor has more elements than any machine can hold")
    return tuple(shape)
