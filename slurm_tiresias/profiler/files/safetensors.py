"""safetensors: eight bytes with the length of the header, the header as JSON, the data.

This is as short as calling the safetensors library would be (compiled, Apache-2.0) with the sizes
of its types, its errors and the hint to install it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import prod
from typing import Any, BinaryIO

from slurm_tiresias.profiler.files.tensor import (
    MOST_NAME_CHARACTERS,
    MOST_TENSORS,
    StoredTensor,
    Unreadable,
    checked_shape,
)

LENGTH_BYTES = 8
MOST_HEADER_BYTES = 16 << 20
"""Headers of models with a hundred thousand tensors take up two thirds of this."""

_METADATA = "__metadata__"
_BYTES_OF_TYPE: Mapping[str, int] = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 8),
}


def looks_like_it(start: bytes, file_bytes: int) -> bool:
    """Whether the start of the file is a header length that fits the file, and a brace."""
    length = int.from_bytes(start[:LENGTH_BYTES], "little")
    return start[LENGTH_BYTES : LENGTH_BYTES + 1] == b"{" and length <= file_bytes - LENGTH_BYTES


def tensors_in(stream: BinaryIO, file_bytes: int) -> Iterator[StoredTensor]:
    """Yield every tensor of the file; raise ``Unreadable``."""
    length = int.from_bytes(stream.read(LENGTH_BYTES), "little")
    if length > MOST_HEADER_BYTES:
        raise Unreadable(f"its header claims {length:,} bytes")
    header = _parsed(stream.read(length))
    data_bytes = file_bytes - LENGTH_BYTES - length
    entries = [(name, entry) for name, entry in header.items() if name != _METADATA]
    if len(entries) > MOST_TENSORS:
        raise Unreadable(f"it claims {len(entries):,} tensors")
    spans: list[tuple[int, int]] = []
    for _, entry in entries:
        match entry.get("data_offsets") if isinstance(entry, dict) else None:
            case [int(begin), int(end)] if 0 <= begin <= end <= data_bytes:
                spans.append((begin, end))
            case _:
                raise Unreadable("a tensor lies outside of the file")
    if any(later[0] < earlier[1] for earlier, later in pairwise(sorted(spans))):
        raise Unreadable("two of its tensors lie in the same place")
    for (name, entry), (begin, end) in zip(entries, spans, strict=True):
        yield _tensor(name, entry, end - begin)


def _parsed(header: bytes) -> Mapping[str, Any]:
    try:
        parsed = json.loads(header.decode("utf-8"), object_pairs_hook=_without_twins)
    except (ValueError, RecursionError) as error:
        raise Unreadable("its header is not valid JSON") from error
    if not isinstance(parsed, dict):
        raise Unreadable("its header is not a table")
    return parsed


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError("a name occurs twice")
    return table


def _tensor(name: str, entry: Mapping[str, Any], size_bytes: int) -> StoredTensor:
    dimensions, kind = entry.get("shape"), entry.get("dtype")
    if not isinstance(dimensions, list) or not isinstance(kind, str):
        raise Unreadable("a tensor has no shape or no type")
    shape = checked_shape(dimensions)
    element_bytes = _BYTES_OF_TYPE.get(kind)
    if element_bytes is not None and prod(shape) * element_bytes != size_bytes:
        raise Unreadable("a tensor's shape does not agree with its place in the file")
    return StoredTensor(name[:MOST_NAME_CHARACTERS], shape, size_bytes)
