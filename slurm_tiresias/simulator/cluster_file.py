"""TOML files that describe a cluster to simulate as groups of identical nodes.

    [[group]]
    nodes = 32
    gpus = 8
    type = "v100"
    nodes_per_switch = 16

``nodes`` and ``gpus`` (per node) are required. ``type`` is the GPU type; case does not matter.
``switch`` names one switch for the group, which groups may share; alternatively there is one switch
per ``nodes_per_switch`` nodes. ``nodes_per_block = [4, 16]`` puts the nodes in blocks of four, and
these in blocks of sixteen, as ``BlockSizes`` of Slurm's topology/block does. With
``strict_types = true`` above the groups, a job that names a GPU type which no group has cannot run;
otherwise it runs on any GPU.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from slurm_tiresias.errors import UsageError
from slurm_tiresias.model import ANY_TYPE

MOST_NODES = 100_000
MOST_GPUS_PER_NODE = 9999
MOST_SWITCHES = 1000
MOST_BYTES = 1_000_000
"""Files beyond these limits are rejected as mistakes or abuse."""

KEYS = ("nodes", "gpus", "type", "switch", "nodes_per_switch", "nodes_per_block")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:+-]{0,63}")


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Identical nodes. If ``nodes_per_switch`` is 0, all are on ``switch``; "" if unknown."""

    nodes: int
    gpus: int
    """GPUs per node."""
    gpu_type: str = ANY_TYPE
    switch: str = ""
    nodes_per_switch: int = 0
    nodes_per_block: tuple[int, ...] = ()
    """The sizes of blocks, each a multiple of the one before it."""


def read_cluster(path: Path) -> tuple[tuple[NodeGroup, ...], bool]:
    """Return the groups of a cluster file, and its ``strict_types``.

    Raises a ``UsageError`` that names the file, the group and the key.
    """
    tables = _tables(path)
    for key in tables:
        if key not in ("group", "strict_types"):
            raise UsageError(
                f"{path} has an unknown key {_quoted(key)}",
                "Write [[group]] tables and strict_types",
            )
    strict = tables.get("strict_types", False)
    if not isinstance(strict, bool):
        raise UsageError(
            f"{path}: strict_types = {_quoted(strict)} is neither true nor false", "Write one"
        )
    found = tables.get("group")
    if not found or not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise UsageError(f"{path} has no groups of nodes", "Write [[group]], and nodes and gpus")
    groups = tuple(_group(table, f"{path}: group {i}") for i, table in enumerate(found, start=1))
    _check_size(groups, path)
    return groups, strict


def _tables(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        if isinstance(error, FileNotFoundError):
            why = "it is neither NODESxGPUS nor a file"
        raise UsageError(
            f"{_quoted(str(path))} is not a cluster: {why}",
            "Write nodes x GPUs of each, like 15x4, or name a file that describes them",
        ) from None
    if len(data) > MOST_BYTES:
        raise UsageError(f"{path} is larger than a megabyte", "Name a file that describes nodes")
    try:
        return tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not a text file (byte {error.start})", "Name a file in TOML and UTF-8"
        ) from None
    except (ValueError, RecursionError) as error:
        why = str(error) if isinstance(error, tomllib.TOMLDecodeError) else "it cannot be read"
        raise UsageError(f"{path} is not valid TOML: {why}", "Correct that line") from None


def _group(table: Mapping[str, Any], where: str) -> NodeGroup:
    for key in table:
        if key not in KEYS:
            known = ", ".join(KEYS)
            raise UsageError(f"{where} has no key {_quoted(key)}", f"There are: {known}")
    if "switch" in table and "nodes_per_switch" in table:
        raise UsageError(f"{where} has both switch and nodes_per_switch", "Write one of them")
    per_switch = "nodes_per_switch" in table
    return NodeGroup(
        nodes=_count(table, "nodes", where, MOST_NODES),
        gpus=_count(table, "gpus", where, MOST_GPUS_PER_NODE),
        gpu_type=_name(table, "type", where).lower(),
        switch=_name(table, "switch", where),
        nodes_per_switch=_count(table, "nodes_per_switch", where, MOST_NODES) if per_switch else 0,
        nodes_per_block=_block_sizes(table, where),
    )


def _block_sizes(table: Mapping[str, Any], where: str) -> tuple[int, ...]:
    sizes = table.get("nodes_per_block", [])
    valid = isinstance(sizes, list) and all(type(size) is int and size > 0 for size in sizes)
    if valid and all(b > a and b % a == 0 for a, b in pairwise(sizes)):
        return tuple(sizes)
    raise UsageError(
        f"{where}: nodes_per_block = {_quoted(sizes)} are no sizes of blocks",
        "Write them like [4, 16], each a multiple of the one before it",
    )


def _count(table: Mapping[str, Any], key: str, where: str, at_most: int) -> int:
    if key not in table:
        raise UsageError(f"{where} has no {key}", f"Write {key} = NUMBER")
    value = table[key]
    if type(value) is int and 1 <= value <= at_most:
        return value
    raise UsageError(
        f"{where}: {key} = {_quoted(value)} is out of range", f"Write a number from 1 to {at_most}"
    )


def _name(table: Mapping[str, Any], key: str, where: str) -> str:
    """Return the name under a key; empty if the key is absent."""
    if key not in table:
        return ""
    value = table[key]
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    raise UsageError(
        f"{where}: {key} = {_quoted(value)} is not a valid name",
        "Write up to 64 letters, digits and -_.:+ in quotes, a letter or digit first",
    )


def _check_size(groups: tuple[NodeGroup, ...], path: Path) -> None:
    nodes = sum(group.nodes for group in groups)
    if nodes > MOST_NODES:
        raise UsageError(f"{path} has {nodes} nodes", f"Describe at most {MOST_NODES}")
    named = {group.switch for group in groups if group.switch}
    switches = len(named) + sum(
        -(-group.nodes // group.nodes_per_switch) for group in groups if group.nodes_per_switch
    )
    if switches > MOST_SWITCHES:
        raise UsageError(
            f"{path} has {switches} switches", f"Raise nodes_per_switch: at most {MOST_SWITCHES}"
        )


def _quoted(value: Any) -> str:
    """Quote an untrusted value for a message: short, and without control characters."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        text = "something huge"
    return text if len(text) <= 40 else text[:37] + "..."
