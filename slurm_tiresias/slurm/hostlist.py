"""Fold names into Slurm's hostlists: ``n[1-3,7]`` and ``123_[4-9]``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
from ClusterShell.RangeSet import RangeSet

from slurm_tiresias.slurm.notation import node_names


def folded(nodes: Iterable[str]) -> str:
    """Return the canonical hostlist of these node names; "" if there are none."""
    names = tuple(sorted(nodes))
    return _folded(names) if names else ""


@lru_cache(maxsize=4096)
def _folded(names: tuple[str, ...]) -> str:
    return str(NodeSet.fromlist(names, resolver=RESOLVER_NOGROUP))


def refolded(node_list: str) -> str:
    """Return a hostlist in its canonical spelling (``folded``)."""
    return folded(node_names(node_list))


def array_tasks(keys: Iterable[str]) -> str:
    """Return one key for several tasks of one array: ``12_[4-5]`` for ``12_4`` and ``12_5``."""
    arrays, numbers = zip(*(key.split("_", 1) for key in keys), strict=True)
    return f"{arrays[0]}_[{RangeSet.fromlist(numbers)}]"


def task_keys(key: str) -> Sequence[str]:
    """Return the tasks that a key of ``array_tasks`` stands for; any other key, for itself."""
    array, _, numbers = key.partition("_[")
    return [f"{array}_{number}" for number in RangeSet(numbers[:-1])] if numbers else [key]
