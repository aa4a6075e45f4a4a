"""The reference of ``--json`` output, field by field; generates docs/reference/json.md."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

from slurm_tiresias.cli.explain import Section
from slurm_tiresias.cli.explain_array import ReasonSummary, TierSummary
from slurm_tiresias.cli.history import JobEnd, RunSummary
from slurm_tiresias.status.job_history import JobHistory
from slurm_tiresias.status.published import (
    PublishedEvent,
    PublishedJob,
    PublishedState,
    PublishedTier,
)

NAMES: Mapping[object, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}

EXPLANATION: Mapping[str, object] = {
    "schema": int,
    "cluster": str,
    "mode": str,
    "at_s": float,
    "job": PublishedJob | None,
    "tier": PublishedTier | None,
    "blocking_jobs": tuple[PublishedJob, ...],
    "room_expected_at_s": float | None,
    "events": tuple[PublishedEvent, ...],
    "sections": tuple[Section, ...],
}

ARRAY: Mapping[str, object] = {
    "schema": int,
    "cluster": str,
    "mode": str,
    "at_s": float,
    "array": str,
    "tiers": tuple[TierSummary, ...],
    "reasons": tuple[ReasonSummary, ...],
}

OF_RUNS = ("progress", "costs")
"""Fields of ``JobHistory`` that each run has of its own."""

COMMANDS: Mapping[str, Mapping[str, object]] = {
    "status": get_type_hints(PublishedState),
    "explain": EXPLANATION,
    "explain ARRAY": ARRAY,
    "history": {
        "schema": int,
        **{name: hint for name, hint in get_type_hints(JobHistory).items() if name not in OF_RUNS},
        "runs": tuple[RunSummary, ...],
        "end": JobEnd | None,
    },
}
"""The fields and types of the object that each command prints."""


INTRODUCTION = """\
For programs that read `status`, `explain` and `history` with `--json`: one object on one line.
`schema` is 1 in each; while it is, fields are added, and none is removed or changed. Times are
seconds since 1970 (`at_s`, `submitted_s`), durations seconds (`waited_s`), GPU time GPU-seconds
(`attained_gpu_s`). Names are as users wrote them and may contain anything. `x[]` is each item of a
list.

`state`, `slurm_state` and `slurm_reason` are Slurm's view of a job; `action`, `reason`, `start_on`,
`victims` and `preempted_for` are the controller's decision. If `mode` is not `enforce`, decisions
are not carried out, and `would` describes how they differ from what Slurm does, as do events of the
kind `would`.

This page is written by `scripts/dev generate`.
"""


SHARED: Mapping[object, str] = {
    PublishedJob: "job",
    PublishedTier: "tier",
    PublishedEvent: "event",
}
"""Objects that several commands print; each has a section of its own."""


def fields_of(command: str) -> dict[str, str]:
    """Return every field in the ``--json`` output of this command, by path (``jobs[].tier``), with
    its JSON type."""
    return dict(_fields(COMMANDS[command], ""))


def _fields(
    hints: Mapping[str, Any], before: str, shared: Mapping[object, str] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield paths and types; an object in ``shared`` is named instead of spelled out."""
    for name, hint in hints.items():
        kind, suffix = hint, ""
        if get_origin(hint) in (Union, types.UnionType):
            (kind,) = (each for each in get_args(hint) if each is not type(None))
            suffix = " or null"
        path = before + name
        if get_origin(kind) is tuple:
            (each, _) = get_args(kind)
            yield from _one_or_its_fields(f"{path}[]", each, "", shared or {})
        elif isinstance(get_origin(kind), type) and issubclass(get_origin(kind), Mapping):
            yield path, f"object of {NAMES[get_args(kind)[1]]}s by name{suffix}"
        else:
            yield from _one_or_its_fields(path, kind, suffix, shared or {})


def _one_or_its_fields(
    path: str, kind: Any, suffix: str, shared: Mapping[object, str]
) -> Iterator[tuple[str, str]]:
    if kind in shared:
        yield path, f"[{shared[kind]}](#{shared[kind]}){suffix}"
        return
    if not is_dataclass(kind):
        yield path, NAMES[kind] + suffix
        return
    if suffix:
        yield path, f"object{suffix}"
    yield from _fields(get_type_hints(kind), f"{path}.", shared)


def reference_lines() -> Iterator[str]:
    yield "# What --json prints"
    yield ""
    yield from INTRODUCTION.splitlines()
    sections = {**COMMANDS, **{name: get_type_hints(kind) for kind, name in SHARED.items()}}
    for title, hints in sections.items():
        yield ""
        yield f"## {title}"
        yield ""
        yield "| field | |"
        yield "|---|---|"
        yield from (f"| `{path}` | {kind} |" for path, kind in _fields(hints, "", SHARED))


if __name__ == "__main__":
    print("\n".join(reference_lines()))
