"""Sets of nodes: integers used as bit sets, so that a few operations filter thousands of nodes.

Nodes are numbered in the order of their names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

NodeSet = int
"""A bit set of nodes; the lowest bit is the first node by name."""


def numbers(nodes: NodeSet) -> Iterator[int]:
    """Yield the numbers of the nodes in a set, ascending."""
    while nodes:
        lowest = nodes & -nodes
        yield lowest.bit_length() - 1
        nodes ^= lowest


def node_set(these: Iterable[int]) -> NodeSet:
    """Return the set of the nodes with these numbers."""
    found = 0
    for number in these:
        found |= 1 << number
    return found


def columns(nodes: NodeSet, count: int) -> npt.NDArray[np.intp]:
    """Return the numbers of the nodes in a set as an array, ascending. ``count`` is the number of
    all nodes."""
    packed = np.frombuffer(nodes.to_bytes(-(-count // 8), "little"), np.uint8)
    return np.flatnonzero(np.unpackbits(packed, bitorder="little"))


def lowest(nodes: NodeSet) -> int:
    """Return the number of the first node by name."""
    return (nodes & -nodes).bit_length() - 1


def first_from(nodes: NodeSet, start: int) -> int:
    """Return the first node of a set at or after this number, wrapping around at the end."""
    later = nodes >> start
    return start + lowest(later) if later else lowest(nodes)
