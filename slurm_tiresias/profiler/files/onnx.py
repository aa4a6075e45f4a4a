"""ONNX: a protobuf message; the weights are the initializers of its graph.

Only the few fields that describe initializers are read, straight from the wire format; everything
else, above all the data, is skipped. Initializers of subgraphs (the branches of an If) are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import BinaryIO

from slurm_tiresias.profiler.files.tensor import (
    MOST_NAME_CHARACTERS,
    MOST_TENSORS,
    StoredTensor,
    Unreadable,
    checked_shape,
)

MOST_FIELDS = 2_000_000
MOST_VARINT_BYTES = 10

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_GRAPH_OF_MODEL = 7
_INITIALIZER_OF_GRAPH = 5
_DIMENSIONS, _TYPE, _NAME, _RAW_DATA, _DATA_LOCATION = 1, 2, 8, 9, 14
_EXTERNAL = 1
_STRINGS = 8

_BITS_OF_TYPE: Mapping[int, int] = {
    **dict.fromkeys((1, 6, 12), 32),
    **dict.fromkeys((2, 3, 9, 17, 18, 19, 20, 24), 8),
    **dict.fromkeys((4, 5, 10, 16), 16),
    **dict.fromkeys((7, 11, 13, 14), 64),
    **dict.fromkeys((21, 22, 23), 4),
    15: 128,
}
"""Bits per element, by the number of the type in ONNX."""


def tensors_in(stream: BinaryIO, file_bytes: int) -> Iterator[StoredTensor]:
    """Yield every initializer of the model; raise ``Unreadable``."""
    wire = _Wire(stream)
    graph = None
    for found in wire.fields(0, file_bytes):
        if found.is_message(_GRAPH_OF_MODEL):
            if graph is not None:
                raise Unreadable("it has several graphs")
            graph = found
    if graph is None:
        raise Unreadable("it is none of the known formats, or an ONNX model without a graph")
    initializers = 0
    for found in wire.fields(graph.begin, graph.end):
        if found.is_message(_INITIALIZER_OF_GRAPH):
            initializers += 1
            if initializers > MOST_TENSORS:
                raise Unreadable(f"it claims more than {MOST_TENSORS:,} tensors")
            tensor = _tensor(wire, found)
            if tensor is not None:
                yield tensor


@dataclass(frozen=True, slots=True)
class _Field:
    """One field: its number, its wire type, and its value or the position of its bytes."""

    number: int
    wire_type: int
    value: int
    begin: int
    end: int

    def is_message(self, number: int) -> bool:
        return self.number == number and self.wire_type == _LENGTH


class _Wire:
    """A reader of the protobuf wire format: fields in sequence, messages within their bounds."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._fields_left = MOST_FIELDS

    def fields(self, begin: int, end: int) -> Iterator[_Field]:
        at = begin
        while at < end:
            self._fields_left -= 1
            if self._fields_left < 0:
                raise Unreadable(f"it has more than {MOST_FIELDS:,} fields")
            found = self._field(at, end)
            yield found
            at = found.end

    def bytes_of(self, found: _Field, at_most: int) -> bytes:
        self._stream.seek(found.begin)
        return self._stream.read(min(at_most, found.end - found.begin))

    def numbers_in(self, found: _Field) -> Iterator[int]:
        """Yield the numbers of a repeated field, packed or not."""
        if found.wire_type == _VARINT:
            yield found.value
            return
        at = found.begin
        while at < found.end:
            value, at = self._varint(at, found.end)
            yield value

    def _field(self, at: int, end: int) -> _Field:
        tag, at = self._varint(at, end)
        number, wire_type = tag >> 3, tag & 7
        value, begin = 0, at
        if wire_type == _VARINT:
            value, at = self._varint(at, end)
        elif wire_type == _LENGTH:
            length, begin = self._varint(at, end)
            at = begin + length
        elif wire_type in (_FIXED64, _FIXED32):
            at += 8 if wire_type == _FIXED64 else 4
        else:
            raise Unreadable("it is none of the known formats")
        if at > end or number == 0:
            raise Unreadable("it is none of the known formats, or is cut off")
        return _Field(number, wire_type, value, begin, at)

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        self._stream.seek(at)
        value = 0
        for place, byte in enumerate(self._stream.read(min(MOST_VARINT_BYTES, end - at))):
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, at + place + 1
        raise Unreadable("it is none of the known formats, or is cut off")


@dataclass(slots=True)
class _Described:
    """A tensor's description, as far as its fields have been read."""

    dimensions: list[int] = field(default_factory=list)
    type_number: int = 0
    name: str = ""
    raw_bytes: int | None = None
    external: bool = False


def _tensor(wire: _Wire, message: _Field) -> StoredTensor | None:
    described = _Described()
    for found in wire.fields(message.begin, message.end):
        _take_in(described, found, wire)
    if described.type_number == _STRINGS:
        return None
    bits = _BITS_OF_TYPE.get(described.type_number)
    if bits is None:
        raise Unreadable(f"a tensor has the unknown data type {described.type_number}")
    shape = checked_shape(described.dimensions)
    size_bytes = -(-prod(shape) * bits // 8)
    # The file must hold all the data that the tensor claims, unless the data is external.
    if not described.external:
        if described.raw_bytes not in (None, size_bytes):
            raise Unreadable("a tensor's shape does not agree with its data")
        if described.raw_bytes is None and prod(shape) > message.end - message.begin:
            raise Unreadable("a tensor claims more elements than it holds")
    return StoredTensor(described.name, shape, size_bytes)


def _take_in(described: _Described, found: _Field, wire: _Wire) -> None:
    if found.number == _DIMENSIONS:
        for dimension in wire.numbers_in(found):
            described.dimensions.append(dimension)
            checked_shape(described.dimensions)
    elif found.number == _TYPE:
        described.type_number = found.value
    elif found.is_message(_NAME):
        name = wire.bytes_of(found, MOST_NAME_CHARACTERS)
        described.name = name.decode("utf-8", errors="replace")
    elif found.is_message(_RAW_DATA):
        described.raw_bytes = found.end - found.begin
    elif found.number == _DATA_LOCATION:
        described.external = found.value == _EXTERNAL
