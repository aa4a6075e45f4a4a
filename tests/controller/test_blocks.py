"""Random jobs with segments on 16 nodes in four blocks, on the in-memory Slurm."""

from __future__ import annotations

from random import Random

import pytest

from scripts.testbed.in_memory import InMemorySlurm, Settings, Submission
from scripts.testbed.in_memory.blocks import Blocks
from slurm_tiresias.config import parse
from slurm_tiresias.controller.cycle import ENFORCE, Cycles
from slurm_tiresias.model import Amount, Node, Request
from slurm_tiresias.profiler.service import Profiler
from slurm_tiresias.profiler.store import ProfileStore
from slurm_tiresias.slurm.protocol import Partition
from slurm_tiresias.store.ledger import Ledger

NAMES = [f"n{number:02}" for number in range(16)]
CONFIG = parse(
    {
        "policy": {"thresholds_gpu_s": [40, 200]},
        "preemption": {"min_run_s": 5},
        "controller": {"interval_s": 2},
    }
)
JOBS = 30
ENDS_WITHIN_S = 6000.0


def drawn(random: Random) -> Request:
    nodes, segment = random.choice(
        [*((n, 0) for n in (1, 1, 2, 3, 4, 5, 6, 8, 12)), (4, 2), (6, 3), (8, 4), (12, 4), (6, 2)]
    )
    gpus = random.choice((1, 2, 4, 4))
    return Request(
        Amount({"": gpus}, 1, 10),
        chunks=nodes,
        max_chunks_per_node=1,
        min_nodes=nodes,
        max_nodes=nodes,
        segment=segment,
        exclusive=random.random() < 0.2,
    )


def play(seed: int, ledger: Ledger) -> int:
    """Play a round, in which all jobs end; return the number of preemptions."""
    random = Random(seed)
    sizes = random.choice([(4,), (4, 8), (4, 8, 16), (4, 16)])
    nodes = [
        Node(name, Amount({"": 4}, 16, 8000), blocks=tuple((s, str(at // s)) for s in sizes))
        for at, name in enumerate(NAMES)
    ]
    partition = Partition("gpu", frozenset(NAMES), up=True)
    slurm = InMemorySlurm(nodes, (partition,), Settings(requeue_delay_s=5.0))
    profiler = Profiler(ProfileStore(None), CONFIG)
    cycles = Cycles(slurm, slurm.cluster(), ledger, CONFIG, profiler)
    asked: dict[str, Request] = {}
    began_s = slurm.clock.now_s
    while len(asked) < JOBS or any(job.state for job in slurm.observe().jobs):
        assert slurm.clock.now_s < began_s + ENDS_WITHIN_S, slurm.observe().jobs
        if len(asked) < JOBS and random.random() < 0.4:
            request, lasts_s = drawn(random), random.choice((3.0, 10.0, 60.0))
            asked[slurm.submit(Submission(request, duration_s=lasts_s))] = request
        slurm.advance(random.choice((0.5, 1.0, 2.0)))
        cycles.run(ENFORCE)
    base = [frozenset(NAMES[at : at + 4]) for at in range(0, 16, 4)]
    blocks = Blocks(base, sizes)
    for key, request in asked.items():
        for run in cycles.job_store.runs.in_order(key):
            on = run.nodes.split(",")
            chosen = blocks.choose(on, request.min_nodes, request.segment, required=on)
            assert chosen == frozenset(on), (key, on)
    query = "SELECT COUNT(*) FROM events WHERE kind IN ('backed-off', 'list-refused')"
    ((in_vain,),) = ledger._database.execute(query).fetchall()
    assert not in_vain
    ((preempted,),) = ledger._database.execute("SELECT COUNT(*) FROM preemptions").fetchall()
    return int(preempted)


@pytest.mark.parametrize("seed", range(5))
def test_every_preemptor_starts_and_jobs_lie_in_few_blocks(ledger: Ledger, seed: int) -> None:
    assert play(seed, ledger)
