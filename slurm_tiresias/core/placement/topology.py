"""Slurm's topology: how the nodes of one job may lie in blocks or under switches.

With topology/block (``eval_nodes_block.c``) each segment of a job, or the whole job if it has no
segments, must lie in one block of the smallest configured size that is large enough, and on as few
blocks of the next smaller size as that takes. With topology/tree only ``--switches`` bounds a job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from slurm_tiresias.core.placement.node_set import NodeSet, numbers
from slurm_tiresias.model import Node, Request


@dataclass(frozen=True, slots=True)
class Layout:
    """The rule for one request: ``segments`` parts, each in one domain and on few of its units."""

    segments: int
    part: Request
    """The request of each segment."""
    domains: Sequence[NodeSet]
    units: Sequence[NodeSet]
    most_units: int

    def spans(self, nodes: NodeSet, room: Callable[[int], int]) -> Iterator[NodeSet]:
        """Yield subsets of ``nodes`` anywhere on which a segment may lie.

        If a domain has more units than a segment may use, those with the most room are chosen.
        ``room`` returns how many chunks a node can take.
        """
        for domain in self.domains:
            here = domain & nodes
            units = [unit & here for unit in self.units if unit & here]
            if len(units) <= self.most_units:
                yield here
            elif self.most_units == 1:
                yield from units
            elif few := self._few(units, room):
                yield few

    def _few(self, units: Sequence[NodeSet], room: Callable[[int], int]) -> NodeSet:
        """Return the fewest units that have room for a segment; no nodes if too many are needed.
        The last one is the tightest."""
        counts = {unit: sum(map(room, numbers(unit))) for unit in units}
        left, chosen = self.part.chunks, 0
        for _ in range(self.most_units):
            enough = [unit for unit in counts if counts[unit] >= left]
            unit = min(enough, key=counts.__getitem__) if enough else max(counts, key=counts.get)  # type: ignore[arg-type]
            chosen |= unit
            left -= counts.pop(unit)
            if left <= 0:
                return chosen
        return 0


class Topology:
    """The switches and blocks of a cluster, as sets of nodes."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        switches: dict[str, NodeSet] = {}
        blocks: dict[int, dict[str, NodeSet]] = {}
        for number, node in enumerate(nodes):
            if node.switch:
                switches[node.switch] = switches.get(node.switch, 0) | 1 << number
            for size, block in node.blocks:
                of_size = blocks.setdefault(size, {})
                of_size[block] = of_size.get(block, 0) | 1 << number
        self.switches = tuple(switches.values())
        """The nodes of each known leaf switch."""
        self._blocks = {size: tuple(blocks[size].values()) for size in sorted(blocks)}
        base = {block for node in nodes for block in node.blocks[:1]}
        self.base_blocks = tuple(blocks[size][name] for size, name in sorted(base))
        """The nodes of each block of the smallest size."""

    def layout(self, request: Request, nodes: NodeSet) -> Layout | None:
        """Return the rule for a request on these nodes; None if it may use any of them."""
        here = {
            size: found
            for size, blocks in self._blocks.items()
            if (found := [block for block in blocks if block & nodes])
        }
        if here:
            return _in_blocks(request, here)
        if request.most_switches and self.switches:
            return Layout(
                *(1, request, (sum(self.switches),), self.switches, request.most_switches)
            )
        return None


def _in_blocks(request: Request, by_size: Mapping[int, Sequence[NodeSet]]) -> Layout:
    nodes = request.min_nodes
    size = request.segment if 0 < request.segment < nodes else nodes
    segments, rest = divmod(nodes, size)
    base = next(iter(by_size))
    doublings = (-(-size // base) - 1).bit_length()
    smaller = [one for one in by_size if one <= base << max(doublings - 1, 0)]
    large = (blocks for one, blocks in by_size.items() if one >= base << doublings)
    domains: Sequence[NodeSet] = next(large, (sum(by_size[base]),))
    part = request
    if segments > 1:
        part = replace(
            request,
            chunks=-(-request.chunks // segments),
            min_nodes=size,
            max_nodes=request.max_nodes and request.max_nodes // segments,
            required_nodes=frozenset(),
        )
    units = by_size[smaller[-1]]
    required = len(request.required_nodes)
    if rest or (segments > 1 and 0 < required < nodes):
        # Slurm starts no job whose segments or node list do not add up to its nodes.
        domains = ()
    return Layout(segments, part, domains, units, -(-size // smaller[-1]))
