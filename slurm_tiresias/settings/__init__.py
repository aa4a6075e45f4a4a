"""How a setting is declared, and the settings of each feature that has a file for them."""

from __future__ import annotations

import dataclasses
from typing import Any

Setting = dataclasses.Field[Any]


def setting(
    default: Any,
    doc: str,
    *,
    unit: str = "",
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """Declare one setting; its documentation everywhere is generated from this."""
    limits = {"unit": unit, "minimum": minimum, "maximum": maximum, "choices": choices}
    return dataclasses.field(default=default, metadata={"doc": doc, **limits})
