"""MPI: agreement among the ranks of a job. Needs mpi4py."""

from __future__ import annotations

from mpi4py import MPI


def any_rank(mine: bool) -> bool:
    """Whether any rank of COMM_WORLD says yes; each must call it at the same step."""
    return bool(MPI.COMM_WORLD.allreduce(mine, op=MPI.LOR))
