"""Build traffic files like the monitor's from message sizes and counts."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from slurm_tiresias.profiler.traffic import FILE_BYTES, LISTS, OCTAVES, SLOTS

HEADER = struct.pack(
    "<8s10I16x", b"TIRESTRF", 2, FILE_BYTES, 64, 26112, 2, OCTAVES, 544, SLOTS, 512, LISTS
)
START_OF_LISTS = FILE_BYTES - LISTS * 512
Sizes = Mapping[int, int]


def traffic_file(
    messages: Sizes | None = None, collectives: Sizes | None = None, lists: Sequence[Sizes] = ()
) -> bytes:
    """Return a file with these counts by message size; sizes without a free slot are unlisted.

    ``lists`` are the separate counts of threads, in addition to ``messages``.
    """
    content = HEADER + section(messages or {}) + section(collectives or {})
    content += struct.pack("<Q", len(lists))
    content = content.ljust(START_OF_LISTS, b"\0") + b"".join(slots(each) for each in lists)
    return content.ljust(FILE_BYTES, b"\0")


def slots(sizes: Sizes) -> bytes:
    words = [word for slot in sizes.items() for word in slot]
    return struct.pack(f"<{2 * SLOTS}Q", *words, *[0] * (2 * SLOTS - len(words)))


def section(sizes: Sizes) -> bytes:
    return b"".join(octave(number, sizes) for number in range(OCTAVES))


def octave(number: int, sizes: Sizes) -> bytes:
    mine = [(size, count) for size, count in sizes.items() if size >> number == 1]
    listed, rest = mine[:SLOTS], mine[SLOTS:]
    words = [
        sum(count for _, count in rest),
        sum(size * count for size, count in rest),
        max((size for size, _ in rest), default=0),
        0,
    ]
    return struct.pack("<4Q", *words) + slots(dict(listed))


def rounds_of(sizes: list[int], rounds: int) -> dict[int, int]:
    """Return the counts by size for a model with these tensor sizes, sent ``rounds`` times."""
    counts: dict[int, int] = {}
    for size in sizes:
        counts[size] = counts.get(size, 0) + rounds
    return counts
