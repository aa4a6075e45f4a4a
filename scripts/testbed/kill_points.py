"""The points at which a controller can be made to fail: every write to Slurm, every commit.

They are derived from the code, so a new kind of write or a new commit becomes a point by itself.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import get_args

from slurm_tiresias import controller
from slurm_tiresias.slurm.protocol import Slurm, Update, Write

CONTROLLER = Path(controller.__file__).parent

READING = frozenset(
    {"driver", "cluster", "may_operate", "acting_host", "observe", "runs", "dependency", "limits"}
    | {"exit_codes"}
)
"""The driver's methods that change nothing in Slurm."""
WRITING = frozenset({"write", "signal"})

BEFORE, INSIDE, AFTER = "before", "inside", "after"
MOMENTS_OF_A_WRITE = (BEFORE, AFTER)
MOMENTS_OF_A_COMMIT = (BEFORE, INSIDE, AFTER)

SIGNAL = "signal"
CLEARED = "update-node_list-cleared"


@dataclasses.dataclass(frozen=True, slots=True)
class KillPoint:
    """A point and the moment of the fault there. ``name`` is one word."""

    name: str
    moment: str

    def __str__(self) -> str:
        return f"{self.moment} {self.name}"


def methods_of_the_driver() -> frozenset[str]:
    """Return the names of all methods of a driver."""
    return frozenset(name for name in vars(Slurm) if not name.startswith("_"))


def names_of_writes() -> tuple[str, ...]:
    """Return every kind of write, with each kind of change of an update separately."""
    changes = [f.name for f in dataclasses.fields(Update) if f.name != "key"]
    others = [_word(kind) for kind in get_args(Write) if kind is not Update]
    return (*(f"update-{change}" for change in changes), CLEARED, *others, SIGNAL)


def names_of(write: Write) -> frozenset[str]:
    """Return the points that one write passes."""
    if not isinstance(write, Update):
        return frozenset({_word(type(write))})
    changes = {f.name: getattr(write, f.name) for f in dataclasses.fields(write)}
    names = {f"update-{name}" for name, value in changes.items() if value is not None}
    return frozenset((names - {"update-key"}) | ({CLEARED} if write.node_list == "" else set()))


@lru_cache
def commits() -> Mapping[tuple[str, int], str]:
    """Return every commit to the ledger by file and line, named like ``commit-send-1``."""
    return {
        (str(file), line): name
        for file in sorted(CONTROLLER.rglob("*.py"))
        for line, name in _commits_in(file)
    }


def everywhere() -> tuple[KillPoint, ...]:
    """Return all points, each with all its moments."""
    writes = (KillPoint(n, moment) for n in names_of_writes() for moment in MOMENTS_OF_A_WRITE)
    committing = (KillPoint(n, m) for n in commits().values() for m in MOMENTS_OF_A_COMMIT)
    return (*writes, *committing)


def _commits_in(file: Path) -> Iterator[tuple[int, str]]:
    for function in ast.walk(ast.parse(file.read_text())):
        if isinstance(function, ast.FunctionDef):
            calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
            lines = [call.lineno for call in calls if _is_commit(call)]
            for number, line in enumerate(sorted(lines), 1):
                yield line, f"commit-{function.name.strip('_')}-{number}"


def _is_commit(call: ast.Call) -> bool:
    """Whether this is a call like ``job_store.commit()``."""
    return isinstance(call.func, ast.Attribute) and call.func.attr == "commit"


def _word(kind: type) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower()
