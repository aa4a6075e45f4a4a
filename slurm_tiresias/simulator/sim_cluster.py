"""The simulated cluster, and the requests and costs of trace jobs on it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import InitVar, dataclass, field, replace
from pathlib import Path

from slurm_tiresias.errors import UsageError
from slurm_tiresias.model import ANY_TYPE, Allocation, Amount, Node, PlacementStyle, Request
from slurm_tiresias.simulator import physics
from slurm_tiresias.simulator.cluster_file import (
    MOST_GPUS_PER_NODE,
    MOST_NODES,
    NodeGroup,
    read_cluster,
)
from slurm_tiresias.simulator.saves import ON_REQUEST_S, SaveModel
from slurm_tiresias.simulator.workload import TraceJob

PARTITION = "gpu"
PLACEMENTS = ("skew", "consolidate", "spread", "random", "pooled")
TYPES_NAMED = 5
"""Maximum number of unknown GPU types that a note names."""
_PLENTY = 10**9
"""CPUs and MiB of memory per node; they are not simulated, so there is always enough."""

_FORCED = {style.value: style for style in PlacementStyle}


@dataclass(frozen=True, slots=True)
class SimCluster:
    """The nodes of a simulated cluster, and the placement of jobs on them.

    Nodes are given as ``nodes`` times ``gpus_per_node``, or as ``groups``. The placement ``pooled``
    counts GPUs only, as if all GPUs of a type were in one node.

    A job that names a GPU type of the cluster gets no other GPUs. A job that names no type, or a
    type that no node has, runs on any; with ``strict_types`` the latter cannot run.
    """

    nodes: InitVar[int] = 0
    gpus_per_node: InitVar[int] = 0
    placement: str = "skew"
    groups: tuple[NodeGroup, ...] = ()
    strict_types: bool = False
    _sizes: Mapping[str, tuple[tuple[int, int], ...]] = field(init=False, repr=False, compare=False)
    """By GPU type: (GPUs per node, number of nodes), the largest nodes first."""

    def __post_init__(self, nodes: int, gpus_per_node: int) -> None:
        groups = self.groups or (NodeGroup(nodes, gpus_per_node),)
        object.__setattr__(self, "groups", groups)
        types = {ANY_TYPE, *(group.gpu_type for group in groups)}
        object.__setattr__(self, "_sizes", {kind: self._sizes_of(kind) for kind in types})

    def _sizes_of(self, gpu_type: str) -> tuple[tuple[int, int], ...]:
        nodes: Counter[int] = Counter()
        for group in self._laid_out():
            if gpu_type in (ANY_TYPE, group.gpu_type):
                nodes[group.gpus] += group.nodes
        return tuple(sorted(nodes.items(), reverse=True))

    def _laid_out(self) -> Iterable[NodeGroup]:
        """The groups as placement sees them; pooled, one node per GPU type."""
        if not self.pooled:
            return self.groups
        gpus: Counter[str] = Counter()
        for group in self.groups:
            gpus[group.gpu_type] += group.nodes * group.gpus
        return [NodeGroup(1, count, gpu_type) for gpu_type, count in gpus.items()]

    @property
    def gpus(self) -> int:
        return self.gpus_for(ANY_TYPE)

    @property
    def pooled(self) -> bool:
        return self.placement == "pooled"

    def type_for(self, gpu_type: str) -> str:
        """Return the GPU type that a job naming ``gpu_type`` is bound to; ``ANY_TYPE`` if any GPU
        will do.

        Jobs of equal width that are bound to the same type have equal requests.
        """
        wanted = gpu_type.lower()
        return wanted if wanted in self._sizes else ANY_TYPE

    def gpus_for(self, gpu_type: str) -> int:
        """Return the number of GPUs that a job naming this type could use on an empty cluster."""
        if self.strict_types and gpu_type.lower() not in self._sizes:
            return 0
        return sum(gpus * nodes for gpus, nodes in self._sizes[self.type_for(gpu_type)])

    def can_run(self, job: TraceJob) -> bool:
        """Whether the job fits the empty cluster."""
        return job.gpus <= self.gpus_for(job.gpu_type)

    def fewest_nodes(self, gpus: int, gpu_type: str = ANY_TYPE) -> int:
        """Return how many nodes a job needs if it gets the largest; all if it does not fit."""
        count = 0
        for gpus_each, nodes in self._sizes[self.type_for(gpu_type)]:
            if gpus <= gpus_each * nodes:
                return count - (-gpus // gpus_each)
            gpus -= gpus_each * nodes
            count += nodes
        return count

    def as_nodes(self) -> tuple[Node, ...]:
        """Return the nodes for the scheduler; their names sort like their numbers.

        The GPU type is a feature of the node, so that only GPU counts decide where a job fits; the
        scheduler is fastest at that.
        """
        groups = list(self._laid_out())
        width = len(str(sum(group.nodes for group in groups)))
        totals = {group.gpus: Amount({ANY_TYPE: group.gpus}, _PLENTY, _PLENTY) for group in groups}
        return tuple(
            Node(
                f"n{number:0{width}}",
                totals[group.gpus],
                frozenset({PARTITION}),
                frozenset({group.gpu_type} if group.gpu_type else ()),
                switch=switch,
                blocks=blocks,
            )
            for number, (group, switch, blocks) in enumerate(_places(groups), start=1)
        )

    def real_nodes(self) -> tuple[Node, ...]:
        """Return the physical nodes; with ``pooled``, each has the name of its pool."""
        if not self.pooled:
            return self.as_nodes()
        pools = {node.features: node.name for node in self.as_nodes()}
        nodes = replace(self, placement="consolidate").as_nodes()
        return tuple(replace(node, name=pools[node.features]) for node in nodes)

    def request(
        self, gpus: int, gpu_type: str = ANY_TYPE, *, only_consolidated: bool = False
    ) -> Request:
        """Return a request for a number of GPUs on any nodes with this GPU type.

        With ``only_consolidated`` it may not use more nodes than it needs.
        """
        bounded = only_consolidated and not self.pooled
        in_blocks = not self.pooled and any(group.nodes_per_block for group in self.groups)
        return Request(
            Amount({ANY_TYPE: 1}),
            chunks=gpus,
            # Slurm finds the block by the number of nodes that a job asks for.
            min_nodes=self.fewest_nodes(gpus, gpu_type) if in_blocks else 1,
            max_nodes=self.fewest_nodes(gpus, gpu_type) if bounded else None,
            features=self.type_for(gpu_type),
            partitions=(PARTITION,),
        )

    def style(self) -> PlacementStyle | None:
        """The style forced on every job; None if the model's skew decides."""
        return _FORCED.get(self.placement)

    def notes(self, jobs: Iterable[TraceJob]) -> tuple[str, ...]:
        """Return sentences on the treatment of jobs that name GPU types which no node has."""
        if self._sizes.keys() == {ANY_TYPE} and not self.strict_types:
            return ()
        unknown = Counter(
            job.gpu_type for job in jobs if job.gpu_type and not self.type_for(job.gpu_type)
        )
        if not unknown:
            return ()
        named = ", ".join(repr(kind[:40]) for kind, _ in unknown.most_common(TYPES_NAMED))
        more = ", ..." if len(unknown) > TYPES_NAMED else ""
        total = unknown.total()
        who = "1 job names" if total == 1 else f"{total:,} jobs name"
        they = "it runs" if total == 1 else "they run"
        fate = f"{they.split()[0]} cannot run" if self.strict_types else f"{they} on any"
        return (f"{who} GPUs that no node has ({named}{more}): {fate}",)


def _places(
    groups: Iterable[NodeGroup],
) -> Iterator[tuple[NodeGroup, str, tuple[tuple[int, str], ...]]]:
    """Yield the group, the switch and the blocks of each node.

    Generated names contain a slash, which names in cluster files cannot.
    """
    for which, group in enumerate(groups):
        for place in range(group.nodes):
            switch = group.switch
            if group.nodes_per_switch:
                switch = f"{which}/{place // group.nodes_per_switch}"
            blocks = ((size, f"{which}/{place // size}") for size in group.nodes_per_block)
            yield group, switch, tuple(blocks)


def parse_cluster(spec: str, placement: str) -> SimCluster:
    """Parse a cluster: ``15x4`` is 15 nodes with 4 GPUs each; any other text is the path of a
    cluster file.

    Raises ``UsageError`` if it is neither.
    """
    match = re.fullmatch(r"(\d+)x(\d+)", spec)
    if match is None:
        groups, strict_types = read_cluster(Path(spec))
        return SimCluster(placement=placement, groups=groups, strict_types=strict_types)
    nodes, gpus = (int(digits) if len(digits) < 7 else 0 for digits in match.groups())
    if not (0 < nodes <= MOST_NODES and 0 < gpus <= MOST_GPUS_PER_NODE):
        raise UsageError(
            f"{spec[:40]!r} is not a cluster",
            f"Write nodes x GPUs of each, like 15x4, up to {MOST_NODES}x{MOST_GPUS_PER_NODE}",
        )
    return SimCluster(nodes, gpus, placement)


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of placement and preemption.

    ``flat_s`` is the cost of one preemption in seconds; None means by model, as the paper measured.
    ``speeds`` says whether placement changes a job's speed. The speeds were measured with 8-GPU
    jobs on nodes of four GPUs (paper Fig. 3) and distinguish two cases: a job on as few nodes as
    possible, and a job on more. They are applied to every width and any number of extra nodes.
    Switches and GPU types do not affect speed: on any type, a job lasts as long as in its trace.
    """

    cluster: SimCluster
    speeds: bool
    flat_s: float | None
    saves: SaveModel | None = None
    """How programs save; None if all save on request, so that no work is lost."""

    def speed(self, job: TraceJob, allocation: Allocation) -> float:
        """Progress per second; a job on as few nodes as possible counts as consolidated."""
        if not self.speeds:
            return 1.0
        spread = self.is_spread(job, allocation)
        return physics.physics_of(job.model).spread_speed if spread else 1.0

    def is_spread(self, job: TraceJob, allocation: Allocation) -> bool:
        """Whether the job is on more nodes than it would need of those with its GPU type."""
        nodes = len(allocation)
        if nodes == 1 or self.cluster.pooled:
            return False
        return nodes > self.cluster.fewest_nodes(job.gpus, job.gpu_type)

    def restart_s(self, job: TraceJob) -> float:
        """Running time in seconds lost to one preemption."""
        if self.flat_s is not None:
            return self.flat_s
        return physics.restart_cost_s(job.model, job.gpus)

    def save_every_s(self, job: TraceJob) -> float:
        """Running time between two saves of a job; 0 if it saves when it is asked to."""
        return self.saves.every_s(job) if self.saves else ON_REQUEST_S

    def tells_saves(self, job: TraceJob) -> bool:
        """Whether a job reports its saves."""
        return self.saves is not None and self.saves.tells(job)
