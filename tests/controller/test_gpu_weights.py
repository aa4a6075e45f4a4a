"""Slices of GPUs, and older generations, count for less than a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scripts.testbed.in_memory import InMemorySlurm, Settings, Submission
from slurm_tiresias.config import parse
from slurm_tiresias.controller.cycle import ENFORCE, Cycles
from slurm_tiresias.controller.gpu_weights import gpu_weights
from slurm_tiresias.errors import ConfigError
from slurm_tiresias.model import Amount, Node, Request
from slurm_tiresias.profiler.service import Profiler
from slurm_tiresias.profiler.store import ProfileStore
from slurm_tiresias.slurm import notation
from slurm_tiresias.slurm.protocol import Partition
from slurm_tiresias.store.ledger import Ledger

SLICE = "1g.10gb"
BILLED = "CPU=1.0,Mem=0.25G,GRES/gpu=1,GRES/gpu:h100=7.0,gres/gpu:1g.10gb=1"
NODES = (Node("n1", Amount({"h100": 4}, 16, 8000)), Node("n2", Amount({SLICE: 28}, 16, 8000)))


def partition() -> Partition:
    return Partition(
        "gpu", frozenset({"n1", "n2"}), up=True, gpu_weights=notation.gpu_weights(BILLED)
    )


def one_gpu(gpu_type: str) -> Request:
    return Request(Amount({gpu_type: 1}, 1), max_chunks_per_node=1, max_nodes=1)


@pytest.mark.parametrize(
    ("configured", "weight"), [([], 1 / 7), (["1g.10gb=0.25"], 0.25), (["v100=0.3"], 1.0)]
)
def test_a_slice_of_a_gpu_attains_service_by_its_weight(
    ledger: Ledger, configured: list[str], weight: float
) -> None:
    config = parse({"policy": {"thresholds_gpu_s": [20], "gpu_weights": configured}})
    slurm = InMemorySlurm(NODES, (partition(),), Settings())
    profiler = Profiler(ProfileStore(None), config)
    cycles = Cycles(slurm, slurm.cluster(), ledger, config, profiler)
    keys = {kind: slurm.submit(Submission(one_gpu(kind))) for kind in ("h100", SLICE)}
    for _ in range(20):
        slurm.advance(5.0)
        cycle = cycles.run(ENFORCE)
    runs = cycles.job_store.runs
    whole_gpu_s, slice_gpu_s = (runs.attained_gpu_s(keys[kind]) for kind in ("h100", SLICE))
    assert whole_gpu_s > 50.0
    assert slice_gpu_s == pytest.approx(whole_gpu_s * weight, rel=0.1)
    tiers = [cycle.plan.decisions[keys[kind]].tier for kind in ("h100", SLICE)]
    assert tiers == [1, 0 if slice_gpu_s < 20 else 1]


def test_weights_that_stay_the_same_are_the_same_object() -> None:
    before = gpu_weights([partition()], parse({}))
    assert before == {"h100": 1.0, SLICE: 1 / 7}
    assert gpu_weights([partition()], parse({}), before) is before
    others = replace(partition(), name="not managed")
    assert gpu_weights([others], parse({"manage": {"partitions": ["gpu"]}})) == {}


@pytest.mark.parametrize("item", ["v100", "v100=", "v100=0", "=1", "v100=-1", "a b=1", "v=1e3"])
def test_a_weight_that_cannot_be_read_is_refused(item: str) -> None:
    with pytest.raises(ConfigError, match=r"policy\.gpu_weights"):
        parse({"policy": {"gpu_weights": [item]}})
