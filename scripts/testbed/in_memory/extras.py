"""What a job requests beyond its ``Request``; at most the option's name is visible to controllers.

Slurm starts the job only if all of this is satisfied, and holds it if it never can be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Extras:
    """Options of sbatch that ``Request`` cannot express.

    Parameters
    ----------
    nodes
        The nodes that can satisfy it (``--tmp``); None for all.
    groups
        All its nodes must be in one of these (``--switches=1``, ``--contiguous``, ``[a|b]``).
    drives
        Number of a second kind of GRES that it takes on each node.
    user_alone
        Whether its nodes run no other user's job (``--exclusive=user``).
    """

    nodes: frozenset[str] | None = None
    groups: tuple[frozenset[str], ...] = ()
    drives: int = 0
    user_alone: bool = False

    def among(self, names: frozenset[str]) -> Iterator[frozenset[str]]:
        """Yield subsets of these nodes, one of which must hold the whole job."""
        able = names if self.nodes is None else names & self.nodes
        yield from (able & group for group in self.groups or (able,))


NONE = Extras()
