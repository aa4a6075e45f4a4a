"""Traffic files as the monitor writes them, from sizes and counts."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from slurm_tiresias.profiler.traffic import FILE_BYTES, OCTAVES, SLOTS

HEADER = struct.pack("<8s8I24x", b"TIRESTRF", 1, FILE_BYTES, 64, 26112, 2, OCTAVES, 544, SLOTS)
Sizes = Mapping[int, int]


def traffic_file(messages: Sizes | None = None, collectives: Sizes | None = None) -> bytes:
    """A file with so many messages of each size; sizes that find no slot are unlisted."""
    content = HEADER + section(messages or {}) + section(collectives or {})
    return content.ljust(FILE_BYTES, b"\0")


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
        *(word for slot in listed for word in slot),
    ]
    return struct.pack("<68Q", *words, *[0] * (68 - len(words)))


def rounds_of(sizes: list[int], rounds: int) -> dict[int, int]:
    """A model of these tensors that was sent so many times."""
    counts: dict[int, int] = {}
    for size in sizes:
        counts[size] = counts.get(size, 0) + rounds
    return counts
