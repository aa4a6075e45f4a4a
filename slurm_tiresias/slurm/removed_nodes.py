"""Which nodes have been removed from slurm.conf, before slurmctld has read it again.

When slurmctld restarts without a node, it ends every job that has the node in its node list, also
a running one, which it would requeue otherwise (``_sync_detail_bitmaps`` in
src/slurmctld/read_config.c). So nothing must be about to start on such a node by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from slurm_tiresias.errors import SlurmAnswerError
from slurm_tiresias.model import JobState
from slurm_tiresias.slurm import conf_file
from slurm_tiresias.slurm.hostlist import folded
from slurm_tiresias.slurm.protocol import Observation

NOT_IN_SLURM_CONF = "NOT_IN_SLURM_CONF"
"""The state shown for such a node."""

MOST_NAMED = 10


class RemovedNodes:
    """Follows slurm.conf and its included files, if this host has the file that slurmctld reads.

    Only a node that the file once named, and no longer names, counts as removed: another host's
    copy may be old, and dynamic nodes are in no file.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._stamps: Mapping[Path, int] = {}
        self._once_named: frozenset[str] = frozenset()
        self.names: frozenset[str] = frozenset()
        """The removed nodes."""
        self.have_changed()

    def have_changed(self) -> bool:
        """Read the files again if one was written; return whether other nodes are removed now."""
        before = self.names
        try:
            if not self._path or (self._stamps and self._stamps == _stamps(self._stamps)):
                return False
            files, named = conf_file.nodes(Path(self._path))
            self._stamps = _stamps(files)
        except (OSError, SlurmAnswerError):
            return False
        if named:  # an empty file is being written
            self._once_named |= named
            self.names = self._once_named - named
        return self.names != before

    def applied(self, seen: Observation) -> Observation:
        """Return the observation with the removed nodes out of service."""
        if self.names.isdisjoint(node.name for node in seen.nodes):
            return seen
        nodes = (
            replace(node, available=False, state=NOT_IN_SLURM_CONF)
            if node.name in self.names
            else node
            for node in seen.nodes
        )
        return replace(seen, nodes=tuple(nodes))

    def warning(self, seen: Observation) -> str:
        """Name the jobs that run on removed nodes with a node list, which cannot be changed now."""
        lost = [
            job.key
            for job in seen.jobs
            if job.state is JobState.RUNNING
            and not self.names.isdisjoint(job.spec.request.required_nodes)
        ]
        if not lost:
            return ""
        named = ", ".join(lost[:MOST_NAMED]) + (", …" if len(lost) > MOST_NAMED else "")
        return (
            f"{folded(self.names)} removed from slurm.conf: slurmctld will end job {named} if it "
            "is restarted before they have ended"
        )


def _stamps(files: Iterable[Path]) -> Mapping[Path, int]:
    return {file: file.stat().st_mtime_ns if file.exists() else 0 for file in files}
