"""Promotion must not make jobs take turns: in the authors' simulator it multiplied preemptions."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from slurm_tiresias.config import parse
from slurm_tiresias.settings import Config
from slurm_tiresias.simulator import run
from slurm_tiresias.simulator.engine import Timing
from slurm_tiresias.simulator.sim_cluster import Costs, parse_cluster
from slurm_tiresias.simulator.traces import load_trace
from slurm_tiresias.simulator.workload import Workload
from tests.simulator.test_real_traces import trace

SIM_CLUSTER = parse_cluster("16x8", "pooled")


@cache
def preemptions(workload: Workload, config: Config) -> int:
    """On 128 GPUs; each preemption costs the 62 s of the paper's testbed."""
    setup = run.Setup(SIM_CLUSTER, config, Costs(SIM_CLUSTER, speeds=False, flat_s=62.0), Timing())
    return sum(outcome.preemptions for outcome in run.simulate(workload, "tiresias-l", setup))


def with_knob(knob: float, **policy: object) -> Config:
    """The default settings, except for the limit of victims per cycle, which a simulation does not
    have."""
    return parse({"policy": {"promote_knob": knob, **policy}})


def philly() -> Workload:
    """The backlog in which the authors' simulator went from 1,669 preemptions to 135,591."""
    whole = load_trace(trace("philly_vc_ee9e8c.csv"))
    return replace(whole, jobs=tuple(job for job in whole.jobs if job.duration_s >= 60))


@pytest.mark.parametrize(("knob", "most"), [(8.0, 1.5), (1.0, 3.2)])
def test_promotion_does_not_make_long_jobs_take_turns(knob: float, most: float) -> None:
    without = preemptions(philly(), with_knob(0.0))
    assert preemptions(philly(), with_knob(knob)) <= most * without
