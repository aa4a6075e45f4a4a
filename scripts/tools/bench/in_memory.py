"""The cost of a cycle on the in-memory Slurm: one read, a few writes, one second of its clock."""

from __future__ import annotations

import time

from scripts.testbed.in_memory import InMemorySlurm, Submission
from scripts.tools.document import markdown, write_section
from slurm_tiresias.model import Amount, Request
from slurm_tiresias.slurm.protocol import Requeue, Update

CYCLES, ROUNDS = 3_000, 5
SIZES = (10, 100, 1_000)
"""Numbers of jobs; four of them fit on the four nodes."""


def measure() -> None:
    rows = [
        [f"{jobs}", f"{at_rest:,.0f}", f"{busy:,.0f}"]
        for jobs in SIZES
        for at_rest, busy in [(_cycles_a_s(jobs, busy=False), _cycles_a_s(jobs, busy=True))]
    ]
    header = ("jobs", "cycles a second, nothing changes", "cycles a second, busy")
    text = (
        "Four nodes of four GPUs. A cycle is one `observe` and one second that passes; in a busy "
        "one a priority, a node list and a start time are written as well, and in every tenth a "
        f"running job is requeued. CPU time, the best of {ROUNDS} rounds."
    )
    write_section(
        "The in-memory Slurm", "scripts/dev bench in-memory", f"{markdown(header, rows)}\n\n{text}"
    )


def _cycles_a_s(jobs: int, *, busy: bool) -> float:
    cycles = CYCLES * SIZES[0] // jobs
    return max(cycles / _round_s(jobs, cycles, busy) for _ in range(ROUNDS))


def _round_s(jobs: int, cycles: int, busy: bool) -> float:
    slurm = InMemorySlurm()
    request = Request(Amount({"": 1}, 1), 4)
    keys = [slurm.submit(Submission(request)) for _ in range(jobs)]
    slurm.advance(5)
    began_s = time.process_time()
    for cycle in range(cycles):
        seen = slurm.observe()
        if busy:
            key, other = keys[cycle % jobs], keys[(cycle + 3) % jobs]
            slurm.write(
                [
                    Update(key, priority=1_000 + cycle),
                    Update(other, node_list="n1" if cycle % 2 else ""),
                    Update(other, start_in_s=2),
                ]
            )
            if cycle % 10 == 0:
                running = next(job.key for job in seen.jobs if job.start_s is not None)
                slurm.write([Requeue(running)])
        slurm.advance(1)
    return time.process_time() - began_s
