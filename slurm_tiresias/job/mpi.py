"""MPI: the ranks of a job agree. Needs mpi4py."""

from __future__ import annotations

from mpi4py import MPI


def any_rank(mine: bool) -> bool:
    """Whether any rank of COMM_WORLD says yes; each has to call it at the same step."""
    return bool(MPI.COMM_WORLD.allreduce(mine, op=MPI.LOR))
