"""The one decision: a snapshot in, a plan out. Controller, shadow, simulator and explain share it.

The pass is Pseudocode 2 of the paper (page 491) over real nodes: walk the jobs in order; a running
job keeps its nodes unless a job before it claimed them; a waiting job takes idle GPUs first, then
those of running jobs further back and in a lower tier; what does not fit is skipped.
"""

from __future__ import annotations

from slurm_tiresias.config import Config
from slurm_tiresias.model import Plan, Snapshot
from slurm_tiresias.policy.policy import Policy
from slurm_tiresias.scheduling.planner import Planner


def decide(snapshot: Snapshot, policy: Policy, config: Config) -> Plan:
    """Decide for every job of a snapshot whether it runs on, starts, is preempted or waits.

    Parameters
    ----------
    snapshot
        All jobs and nodes at one time. Their order does not matter.
    policy
        ``policy.tiers.make_policy(config.policy)``, or a baseline.
    config
        The settings of placement, preemption and promotion.

    Returns
    -------
    Plan
        A decision with its reason for every job of the snapshot.
    """
    return Planner(policy, config).plan(snapshot)
