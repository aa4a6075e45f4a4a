"""Parse Slurm's configuration files: slurm.conf, cgroup.conf, plugstack.conf."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from slurm_tiresias.slurm import notation

MOST_BYTES = 10_000_000
MOST_INCLUDES = 100
"""A larger file is a mistake; with more includes it includes itself."""

_COMMENT = re.compile(r"(?<!\\)#.*")
_PAIR = re.compile(r'(\w+)\s*=\s*("[^"]*"|\S*)')
_RECORD = re.compile(
    r"(?:NodeName|PartitionName|NodeSet|DownNodes|FrontendName|SwitchName)\s*=", re.IGNORECASE
)
"""Matches lines that describe one object, whose keys are its attributes and not settings."""

_NODES = re.compile(r'NodeName\s*=\s*"?([^\s"]+)', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Written:
    """One setting as written in a file. ``line`` counts from 1."""

    key: str
    value: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class PlugstackLine:
    """One plugin of plugstack.conf. ``demand`` is ``required`` or ``optional``."""

    demand: str
    path: str
    file: str
    line: int


def settings(path: Path) -> dict[str, Written]:
    """Return the settings of a slurm.conf or cgroup.conf by lower-case key; the last one wins.

    Node and partition lines are skipped, included files are read. Raises ``OSError``.
    """
    found: dict[str, Written] = {}
    for file, number, line in _lines(path):
        if not _RECORD.match(line):
            for key, value in _PAIR.findall(line):
                found[key.lower()] = Written(key, value.strip('"'), str(file), number)
    return found


def nodes(path: Path) -> tuple[frozenset[Path], frozenset[str]]:
    """Return the files that make up a slurm.conf, and the nodes that they name.

    Raises ``OSError``, and ``SlurmAnswerError`` for names that cannot be read.
    """
    files, named = {path}, set[str]()
    for file, _, line in _lines(path):
        files.add(file)
        if match := _NODES.match(line):
            named.update(notation.node_names(match[1]))
    return frozenset(files), frozenset(named) - {"DEFAULT"}


def plugins(path: Path) -> tuple[PlugstackLine, ...]:
    """Return the plugins of a plugstack.conf and of its included files. Raises ``OSError``."""
    words = ((file, number, line.split()) for file, number, line in _lines(path))
    return tuple(
        PlugstackLine(line[0].lower(), line[1], str(file), number)
        for file, number, line in words
        if len(line) > 1 and line[0].lower() in ("required", "optional")
    )


def _lines(path: Path) -> Iterator[tuple[Path, int, str]]:
    """Yield each non-empty line without its comment, with its file and line number."""
    waiting, begun = [path], 0
    while waiting and begun < MOST_INCLUDES:
        file, begun = waiting.pop(0), begun + 1
        for number, line in _of_one(file):
            word, _, rest = line.partition(" ")
            if word.lower() == "include":
                waiting += _included(path.parent, rest.strip())
            else:
                yield file, number, line


def _of_one(file: Path) -> Iterator[tuple[int, str]]:
    with file.open("rb") as stream:
        text = stream.read(MOST_BYTES).decode("utf-8", errors="replace")
    begun, whole = 0, ""
    for number, raw in enumerate(text.split("\n"), start=1):
        begun = begun or number
        line = _COMMENT.sub("", raw).rstrip()
        if line.endswith("\\"):
            whole += line[:-1]
            continue
        if said := " ".join((whole + line).split()):
            yield begun, said
        begun, whole = 0, ""


def _included(folder: Path, pattern: str) -> list[Path]:
    """The files that an ``include`` names; in plugstack.conf it may be a pattern."""
    if not pattern:
        return []
    absolute = Path(pattern) if pattern.startswith("/") else folder / pattern
    try:
        return sorted(absolute.parent.glob(absolute.name))
    except (OSError, ValueError):
        return []
