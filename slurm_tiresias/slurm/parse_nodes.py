"""Parse scontrol's ``show node``, ``partition``, ``topology`` and ``reservation``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

from slurm_tiresias.errors import SlurmAnswerError
from slurm_tiresias.model import Amount, Node
from slurm_tiresias.slurm import notation
from slurm_tiresias.slurm.protocol import Partition, Reservation


class Location(NamedTuple):
    """The leaf switch and the blocks of a node, as in ``model.Node``."""

    switch: str = ""
    blocks: tuple[tuple[int, str], ...] = ()


Locations = Mapping[str, Location]
"""By node, for nodes in the topology."""

NO_LOCATIONS: Locations = {}

POWERED_DOWN = frozenset({"POWERED_DOWN", "POWERING_UP"})
"""Node state words which mean that no slurmd runs there yet, and that Slurm boots the node for the
first job that it starts there."""

STARTS_JOBS = POWERED_DOWN | {
    *("IDLE", "MIXED", "ALLOCATED", "COMPLETING", "PLANNED", "POWER_UP"),
    *("CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE"),
}
"""Node state words with which Slurm starts jobs on the node.

Any other word (DOWN, DRAIN, RESERVED, POWERING_DOWN, FUTURE, or an unknown one of a later release)
makes the node unavailable.
"""


STARTS_QUEUED_JOBS = frozenset({"UP", "DRAIN"})
"""Partition states in which queued jobs start; DRAIN only refuses new submissions."""

Complain = Callable[[SlurmAnswerError], None]
"""Called with the error of each unreadable record; the other records are still read."""

Record = TypeVar("Record")
Made = TypeVar("Made")


def ignore(_error: SlurmAnswerError) -> None:
    """Ignore an unreadable record."""


def readable(
    records: Iterable[Record],
    read: Callable[[Record], Made],
    complain: Complain,
    instead: Callable[[Record], Made | None] = lambda _record: None,
) -> Iterator[Made]:
    """Yield the parsed records; an unreadable one yields ``instead``, or is skipped if None."""
    for record in records:
        try:
            made: Made | None = read(record)
        except SlurmAnswerError as error:
            complain(error)
            made = instead(record)
        if made is not None:
            yield made


def nodes(
    answer: str,
    partitions: Iterable[Partition],
    topologies: Mapping[str, Locations],
    complain: Complain = ignore,
) -> tuple[Node, ...]:
    """Return all nodes, each with its location and the partitions that start jobs on it now.

    ``topologies`` are by name; the cluster's own, "", holds for nodes whose partitions do not agree
    on another. An unreadable node starts no jobs.
    """
    up = [partition for partition in partitions if partition.up]
    lines = _records(answer, "NodeName=")
    read = partial(_node, up=up, topologies=topologies)
    return tuple(readable(lines, read, complain, lambda line: unreadable_node(_name(line))))


def unreadable_node(name: str) -> Node:
    """Return the stand-in for a node whose record cannot be read: only its name is known."""
    return Node(name, Amount(), available=False, state="UNREADABLE")


def locations(answer: str, name: str = "", complain: Complain = ignore) -> Locations:
    """Return where each node is in the topology of this name: topology/tree or topology/block;
    empty with any other."""
    found: dict[str, Location] = {}
    for nodes, switch in readable(_records(answer, "SwitchName="), _leaf, complain):
        found |= dict.fromkeys(nodes, Location(switch=switch))
    read = partial(readable, read=_block, complain=complain)
    blocks = list(read(_records(answer, "BlockName=")))
    aggregated = read(_records(answer, "AggregatedBlock="))
    sizes = sorted({size for _, _, size in (*blocks, *aggregated)})
    for nodes, index, base in blocks:
        # Slurm names no aggregated block that holds the same blocks as a smaller one.
        numbers = ((size, index // max(size // base, 1)) for size in sizes)
        where = tuple((size, f"{name}/{number}") for size, number in numbers)
        found |= dict.fromkeys(nodes, Location(blocks=where))
    return found


def _leaf(line: str) -> tuple[Sequence[str], str]:
    has = notation.attributes(line)
    nodes = notation.node_names(has.get("Nodes", "")) if has.get("Level") == "0" else ()
    return nodes, _needed(has, "SwitchName")


def _block(line: str) -> tuple[Sequence[str], int, int]:
    has = notation.attributes(line)
    size = notation.whole(_needed(has, "BlockSize"))
    if not size:
        raise notation.unreadable("a block without a size", line)
    index = notation.whole(_needed(has, "BlockIndex"))
    return notation.node_names(has.get("Nodes", "")), index, size


def partitions(answer: str, complain: Complain = ignore) -> tuple[Partition, ...]:
    """Return all partitions. An unreadable one starts no jobs."""
    lines = _records(answer, "PartitionName=")
    return tuple(
        readable(lines, _partition, complain, lambda line: unreadable_partition(_name(line)))
    )


def unreadable_partition(name: str) -> Partition:
    """Return the stand-in for a partition whose record cannot be read: only its name is known."""
    return Partition(name, frozenset(), up=False)


def reservations(
    answer: str, nodes: Iterable[Node], complain: Complain = ignore
) -> tuple[Reservation, ...]:
    """Return reservations of whole nodes, and magnetic ones; not other partial reservations."""
    lines = _records(answer, "ReservationName=")
    cpus = {node.name: node.total.cpus for node in nodes}
    found: list[Reservation] = []
    read = readable(lines, lambda line: (_reservation(line), _cpus(line)), complain)
    for reservation, kept in read:
        if reservation.nodes and kept >= sum(cpus.get(n, 0) for n in reservation.nodes):
            found.append(reservation)
        elif reservation.magnetic:
            found.append(replace(reservation, nodes=frozenset()))
    return tuple(found)


def _reservation(line: str) -> Reservation:
    has = notation.attributes(line)
    return Reservation(
        name=_needed(has, "ReservationName"),
        nodes=frozenset(notation.node_names(has.get("Nodes", ""))),
        start_s=notation.known_epoch(_needed(has, "StartTime")),
        end_s=notation.known_epoch(_needed(has, "EndTime")),
        magnetic="MAGNETIC" in has.get("Flags", "").split(","),
    )


def _cpus(line: str) -> int:
    return (
        notation.tres_value(notation.attributes(line).get("TRES", ""), "cpu", notation.whole) or 0
    )


def _name(line: str) -> str:
    """Return the name in a record that begins with it: ``NodeName=n1 ...``."""
    return line.partition("=")[2].partition(" ")[0]


def _records(answer: str, start: str) -> list[str]:
    return [line for line in answer.split("\n") if line.startswith(start)]


def _node(line: str, up: Iterable[Partition], topologies: Mapping[str, Locations]) -> Node:
    has = notation.attributes(line)
    name, state = _needed(has, "NodeName"), _needed(has, "State")
    memory_mb = notation.whole(_needed(has, "RealMemory")) - notation.whole(
        has.get("MemSpecLimit", "0")
    )
    words = set(state.split("+"))
    powered_down = not words.isdisjoint(POWERED_DOWN)
    if powered_down:
        words.discard("NOT_RESPONDING")
    features = notation.present(has.get("ActiveFeatures", "")).split(",")
    mine = [partition for partition in up if name in partition.nodes]
    named = {partition.topology for partition in mine}
    topology = topologies.get(named.pop() if len(named) == 1 else "", NO_LOCATIONS)
    location = topology.get(name, Location())
    return Node(
        name=name,
        total=Amount(
            gpus=notation.gpus(has.get("Gres", "")),
            cpus=notation.whole(has.get("CPUEfctv") or _needed(has, "CPUTot")),
            memory_mb=max(memory_mb, 0),
        ),
        partitions=frozenset(partition.name for partition in mine),
        features=frozenset(features) - {""},
        available=words <= STARTS_JOBS,
        powered_down=powered_down,
        state=state,
        switch=location.switch,
        blocks=location.blocks,
        weight=notation.whole(has.get("Weight", "1")),
    )


def _partition(line: str) -> Partition:
    has = notation.attributes(line)
    return Partition(
        name=_needed(has, "PartitionName"),
        nodes=frozenset(notation.node_names(_needed(has, "Nodes"))),
        up=_needed(has, "State") in STARTS_QUEUED_JOBS,
        priority_tier=notation.whole(has.get("PriorityTier", "1")),
        most_nodes=_count(has, "MaxNodes"),
        longest_s=notation.span(has.get("MaxTime", "UNLIMITED")),
        most_cpus_per_node=_count(has, "MaxCPUsPerNode"),
        accounts=_allowed(_listed(has, "AllowAccounts")),
        denied_accounts=frozenset(_listed(has, "DenyAccounts")),
        qos=_allowed(_listed(has, "AllowQos")),
        denied_qos=frozenset(_listed(has, "DenyQos")),
        topology=has.get("Topology", ""),
        gpu_weights=notation.gpu_weights(has.get("TRESBillingWeights", "")),
    )


def _count(has: Mapping[str, str], key: str) -> int | None:
    printed = has.get(key, "UNLIMITED")
    return None if printed == "UNLIMITED" else notation.whole(printed)


def _listed(has: Mapping[str, str], key: str) -> Sequence[str]:
    return list(filter(None, notation.present(has.get(key, "")).split(",")))


def _allowed(names: Iterable[str]) -> frozenset[str] | None:
    """Return the accounts or QOS that may use a partition; None if all may."""
    found = frozenset(names)
    return found if found and found != {"ALL"} else None


def _needed(has: dict[str, str], key: str) -> str:
    if key not in has:
        raise notation.unreadable(f"a record without {key}", " ".join(has))
    return has[key]
