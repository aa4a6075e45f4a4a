"""How a table of the configuration file and its settings are declared."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from slurm_tiresias.errors import ConfigError

if TYPE_CHECKING:
    from slurm_tiresias.settings import Config

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


class SettingError(ConfigError):
    """A setting, called by its full name such as ``policy.charge``, has a wrong value."""

    def __init__(self, name: str, problem: str, remedy: str) -> None:
        super().__init__(f"{name} {problem}", remedy)
        self.name = name


class Table:
    """A table of the configuration file: a frozen dataclass of settings."""

    def check(self, config: Config) -> None:
        """Raise ``SettingError`` if settings, each valid for itself, contradict each other."""


def check_absolute(name: str, path: str, kind: str) -> None:
    """Raise ``SettingError`` if the path in this setting does not begin at the root."""
    if not path.startswith("/"):
        raise SettingError(
            name,
            f"= {path!r} is not an absolute path",
            f"Write the path of a {kind}, from the root",
        )
