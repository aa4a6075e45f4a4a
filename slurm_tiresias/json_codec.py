"""Encode and decode the JSON that the controller publishes, with orjson if it is installed.

With tens of thousands of jobs the standard library takes as long as a whole cycle; with hundreds
it does not matter. Debian 12 has no orjson.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, partial
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

try:
    import orjson
except ModuleNotFoundError:  # pragma: no cover
    orjson = None  # type: ignore[assignment]


T = TypeVar("T")
Reader = Callable[[Any], Any]

LONGEST_INTEGER = 20
"""Digits of a 64-bit integer, or of a 63-bit one with a sign."""


def dumps(value: Any) -> bytes:
    """Encode a tree of dataclasses, mappings, sequences and plain values as UTF-8."""
    return _dumps_plainly(value) if orjson is None else orjson.dumps(value)


def loads(text: bytes | bytearray) -> Any:
    """Decode JSON into plain values; raise ``ValueError`` if it is malformed."""
    return _loads_plainly(text) if orjson is None else orjson.loads(text)


def build(kind: type[T], raw: Mapping[str, Any]) -> T:
    """Make a dataclass, and the dataclasses in its fields, from decoded JSON, without the fields
    that only later versions know."""
    readers: Mapping[str, Reader | None] = _readers(kind)  # type: ignore[arg-type]
    known = ((name, readers[name], value) for name, value in raw.items() if name in readers)
    return kind(**{name: value if read is None else read(value) for name, read, value in known})


@cache
def _readers(kind: type) -> Mapping[str, Reader | None]:
    return {name: _reader(wanted) for name, wanted in get_type_hints(kind).items()}


def _reader(wanted: Any) -> Reader | None:
    """Return the function that makes a value of this type; None if JSON has it as it is."""
    if isinstance(wanted, type) and is_dataclass(wanted):
        return partial(build, wanted)
    of = next(filter(None, map(_reader, get_args(wanted))), None)
    if get_origin(wanted) is tuple:
        return tuple if of is None else lambda values: tuple(map(of, values))
    return of and (lambda value: value and of(value))


def _dumps_plainly(value: Any) -> bytes:
    try:
        return _encode(value)
    except ValueError:
        return _encode(_with_null_for_infinity(json.loads(_encode(value, allow_nan=True))))


def _encode(value: Any, allow_nan: bool = False) -> bytes:
    text = json.dumps(
        value, default=_fields_of, ensure_ascii=False, allow_nan=allow_nan, separators=(",", ":")
    )
    return text.encode()


def _with_null_for_infinity(tree: Any) -> Any:
    """Replace infinities and NaN, which JSON lacks, by null, as orjson does."""
    if isinstance(tree, dict):
        return {key: _with_null_for_infinity(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_with_null_for_infinity(value) for value in tree]
    return None if isinstance(tree, float) and not math.isfinite(tree) else tree


def _loads_plainly(text: bytes | bytearray) -> Any:
    try:
        return json.loads(text.decode(), parse_constant=_refuse, parse_int=_number)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def _number(digits: str) -> int | float:
    """Parse a whole number; a float if it needs more than 64 bits, as in orjson."""
    # Python refuses to convert thousands of digits to an integer.
    number = int(digits) if len(digits) <= LONGEST_INTEGER else 2**64
    return number if -(2**63) <= number < 2**64 else float(digits)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _fields_of(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}
