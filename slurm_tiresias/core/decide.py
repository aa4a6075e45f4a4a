"""The scheduling decision: turns a snapshot into a plan. Controller, shadow, simulator and explain
share it.

It is Pseudocode 2 of the paper (page 491) over real nodes. Jobs are visited in rank order: a
running job keeps its nodes unless a job before it preempts it; a waiting job takes idle GPUs first,
then those of later running jobs in lower tiers; a job that does not fit is skipped.
"""

from __future__ import annotations

from slurm_tiresias.config import Config
from slurm_tiresias.core.features.policy import Policy
from slurm_tiresias.core.planner import Planner
from slurm_tiresias.model import Plan, Snapshot


def decide(snapshot: Snapshot, policy: Policy, config: Config) -> Plan:
    """Decide for each job of a snapshot whether it keeps running, starts, is preempted or waits.

    Parameters
    ----------
    snapshot
        All jobs and nodes at one time. Their order does not matter.
    policy
        ``policy.make.make_policy(config.policy)``, or a baseline.
    config
        The settings for placement, preemption and promotion.

    Returns
    -------
    Plan
        A decision and its reason for each job of the snapshot.
    """
    return Planner(policy, config).plan(snapshot)
