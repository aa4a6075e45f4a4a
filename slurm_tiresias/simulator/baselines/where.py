"""Which nodes the jobs of a simulation may use, and how baselines start them there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from slurm_tiresias.core.cluster import Start
from slurm_tiresias.core.placement.node_index import NodeIndex
from slurm_tiresias.core.placement.node_set import NodeSet
from slurm_tiresias.model import ANY_TYPE, Allocation, Amount, Node
from slurm_tiresias.simulator.engine import Ask


class Where(dict[Ask, NodeSet]):
    """The nodes that each ``Ask`` may use, idle or not; a simulated cluster has one partition."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        super().__init__()
        self._node_index = NodeIndex(nodes)

    def __missing__(self, ask: Ask) -> NodeSet:
        (nodes,) = self._node_index.sets_for(ask.request)
        self[ask] = nodes
        return nodes


def by_name(gpus: Iterable[tuple[str, int]]) -> Allocation:
    """Return GPUs by node name as an allocation; nodes with the same name count as one."""
    taken: Counter[str] = Counter()
    for name, count in gpus:
        taken[name] += count
    return {name: Amount({ANY_TYPE: count}) for name, count in taken.items()}


def preempting(starts: Sequence[Start], victims: Iterable[str]) -> list[Start]:
    """Return the starts with all victims in the first, which may need the GPUs of several."""
    return [*(one._replace(victims=tuple(victims)) for one in starts[:1]), *starts[1:]]
