"""What a job asks for beyond its ``Request``, which the controller knows by name at most.

Slurm starts such a job only where all of it is met, and holds it where it never can be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Extras:
    """Options of sbatch that ``Request`` has no place for.

    Parameters
    ----------
    nodes
        The only nodes that may serve it (``--tmp``); None: all.
    groups
        All its nodes are of one of these (``--switches=1``, ``--contiguous``, ``[a|b]``).
    drives
        How many it takes on each of its nodes of a second kind of GRES.
    user_alone
        No other user's job runs beside it (``--exclusive=user``).
    """

    nodes: frozenset[str] | None = None
    groups: tuple[frozenset[str], ...] = ()
    drives: int = 0
    user_alone: bool = False

    def among(self, names: frozenset[str]) -> Iterator[frozenset[str]]:
        """The sets of these nodes of which one must hold the whole job."""
        able = names if self.nodes is None else names & self.nodes
        yield from (able & group for group in self.groups or (able,))


NONE = Extras()
