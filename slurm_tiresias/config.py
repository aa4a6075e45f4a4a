"""Reads ``tiresias.toml`` into the dataclasses of ``settings``, and reports what is wrong in it."""

from __future__ import annotations

import dataclasses
import math
import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from slurm_tiresias.errors import ConfigError
from slurm_tiresias.settings import Config
from slurm_tiresias.settings.declare import Setting, SettingError

_KINDS: Mapping[Any, str] = {
    str: "text in quotes",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    tuple[str, ...]: "a list of texts",
    tuple[float, ...]: "a list of numbers",
}


def load(path: Path) -> Config:
    """Read a configuration file; raises ``ConfigError``, which names the line and the remedy."""
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not a text file (byte {error.start})", "Write it in UTF-8"
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}",
            "Name a readable file with --config or in TIRESIAS_CONFIG",
        ) from error
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also integers of thousands of digits
        raise ConfigError(f"{path} is not valid TOML: {error}", "Correct that line") from error
    try:
        return _parse(tables)
    except SettingError as error:
        line = _line_of(error.name, text)
        raise ConfigError(f"{path}{line}: {error.what}", error.remedy) from error


def parse(tables: Mapping[str, Any], source: str = "the configuration") -> Config:
    """Turn tables as ``tomllib`` gives them into a ``Config``; raises ``ConfigError``."""
    try:
        return _parse(tables)
    except SettingError as error:
        raise ConfigError(f"{source}: {error.what}", error.remedy) from error


def _parse(tables: Mapping[str, Any]) -> Config:
    kinds = get_type_hints(Config)
    read = {}
    for table, settings in tables.items():
        if table not in kinds:
            raise SettingError(table, "is not a table of the configuration", _similar(table, kinds))
        if not isinstance(settings, dict):
            raise SettingError(table, "is not a table", f"Write [{table}] and its settings below")
        read[table] = _parse_table(table, kinds[table], settings)
    config = Config(**read)
    for field in dataclasses.fields(Config):
        getattr(config, field.name).check(config)
    return config


def _parse_table(table: str, kind: type, values: Mapping[str, Any]) -> Any:
    types = get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for name in values:
        if name not in fields:
            raise SettingError(f"{table}.{name}", "is not a setting", _similar(name, fields))
    return kind(
        **{
            name: _parse_setting(f"{table}.{name}", types[name], fields[name], value)
            for name, value in values.items()
        }
    )


def _similar(name: str, names: Mapping[str, Any]) -> str:
    close = get_close_matches(name, names, n=1)
    return f"Perhaps {close[0]!r} was meant" if close else f"There are: {', '.join(names)}"


def _line_of(name: str, text: str) -> str:
    """Return ``:7`` if line 7 of the file sets this setting or begins this table; "" if neither is
    found, as with a name in quotes."""
    header = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if found := re.match(r"\s*\[\s*([\w-]+)\s*\]", line):
            header = found[1]
            here = header
        elif found := re.match(r"\s*([\w-]+(?:\s*\.\s*[\w-]+)?)\s*=", line):
            here = ".".join(filter(None, (header, re.sub(r"\s", "", found[1]))))
        else:
            continue
        if here == name:
            return f":{number}"
    return ""


def _parse_setting(name: str, wanted: Any, field: Setting, value: Any) -> Any:
    try:
        setting_value = _read(wanted, value)
    except (TypeError, ValueError, OverflowError):
        kind, unit = _KINDS[wanted], field.metadata["unit"]
        written = str(value).lower() if isinstance(value, bool) else repr(value)
        raise SettingError(
            name,
            f"= {written} is not {kind}",
            f"Write {kind}{f' ({unit}, without the unit)' if unit else ''}",
        ) from None
    _check_range(name, field, setting_value)
    return setting_value


def _read(wanted: Any, value: Any) -> Any:
    """Convert a value to its setting's type; raise ``TypeError`` or ``ValueError`` if it has
    another type, is text with control characters, or is a number that is not finite."""
    if get_origin(wanted) is tuple:
        if not isinstance(value, list):
            raise TypeError
        return tuple(_read(get_args(wanted)[0], item) for item in value)
    # In Python, a bool is an int too.
    if isinstance(value, bool) is not (wanted is bool):
        raise TypeError
    if not isinstance(value, int | float if wanted is float else wanted):
        raise TypeError
    if isinstance(value, str) and any(ord(character) < 32 for character in value):
        raise ValueError
    if wanted is not float:
        return value
    if not math.isfinite(value):
        raise ValueError
    return float(value)


def _check_range(name: str, field: Setting, value: Any) -> None:
    choices = field.metadata["choices"]
    values = value if isinstance(value, tuple) else (value,)
    for one in values:
        if choices and one not in choices:
            raise SettingError(
                name,
                f"= {one!r} is none of its choices",
                f"Write {'any' if isinstance(value, tuple) else 'one'} of: {', '.join(choices)}",
            )
    if choices and len(set(values)) < len(values):
        raise SettingError(name, "names one twice", "Name each once")
    low, high = field.metadata["minimum"], field.metadata["maximum"]
    for number in values:
        too_low = low is not None and number < low
        too_high = high is not None and number > high
        if too_low or too_high:
            bound = f"at least {low:g}" if too_low else f"at most {high:g}"
            raise SettingError(
                name,
                f"= {number:g} is out of range",
                f"Write {bound} {field.metadata['unit']}".rstrip(),
            )
