"""A job's situation: its request and the state of its nodes, as a short hash.

A failed start is tried again only once the situation has changed, so that no job is preempted twice
for a start that Slurm refuses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slurm_tiresias.model import JobAccount, JobStatus, Node


@dataclass(frozen=True, slots=True)
class Situations:
    """The situations of the jobs in one observation."""

    nodes: Sequence[Node] = ()
    jobs: Mapping[str, JobStatus] = field(default_factory=dict)
    accounts: Mapping[str, JobAccount] = field(default_factory=dict)
    _topologies: dict[tuple[str, ...], str] = field(default_factory=dict)

    def of(self, key: str) -> str:
        """Return a job's situation; "" for an unknown job."""
        job = self.jobs.get(key)
        if job is None:
            return ""
        spec, request = job.spec, job.spec.request
        account = self.accounts.get(key)
        own_list = spec.required_node_list
        if account is not None and account.written_nodes:
            own_list = account.own_nodes
        asked = (
            # Leave out what Slurm itself may change in a requeue or an update.
            *(request.gpu_count, request.features, sorted(request.excluded_nodes), request.opaque),
            *(request.segment, request.most_switches),
            *(own_list, spec.partitions, spec.qos, spec.account, spec.licenses),
            *(spec.reservation, spec.time_limit_s, spec.deadline_s),
        )
        described = f"{self._topology(spec.partitions)} {asked}"
        return hashlib.sha256(described.encode()).hexdigest()[:16]

    def _topology(self, partitions: tuple[str, ...]) -> str:
        """Describe the nodes on which these partitions start jobs."""
        if partitions not in self._topologies:
            lines = sorted(
                f"{node.name} {node.available} {sorted(node.total.gpus.items())} "
                f"{node.total.cpus} {node.total.memory_mb} {node.switch} {node.blocks}"
                for node in self.nodes
                if not node.partitions.isdisjoint(partitions)
            )
            self._topologies[partitions] = "\n".join(lines)
        return self._topologies[partitions]
