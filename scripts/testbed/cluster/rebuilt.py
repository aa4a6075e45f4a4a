"""Rebuild dataclasses from the JSON of ``dataclasses.asdict``."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any, get_args, get_origin, get_type_hints


def rebuilt(kind: Any, value: Any) -> Any:
    """Return a value of this type; raise ``KeyError`` or ``TypeError`` if it does not fit."""
    if is_dataclass(kind):
        if not isinstance(value, dict):
            raise TypeError(f"{value!r} is no object")
        hints = get_type_hints(kind)
        return kind(**{name: rebuilt(hints[name], part) for name, part in value.items()})  # type: ignore[operator]
    if get_origin(kind) is tuple:
        kinds = get_args(kind)
        kinds = kinds[:1] * len(value) if kinds[-1] is ... else kinds
        return tuple(map(rebuilt, kinds, value))
    return value
