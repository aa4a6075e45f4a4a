"""Clusters drawn as text: one line per node, one symbol per GPU.

``.`` is an idle GPU, ``#`` one held by a job that is not managed, anything else the id of the job
that holds it. A node written ``n1!`` is down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from scripts.testbed.job_views import changed, view
from slurm_tiresias.config import parse
from slurm_tiresias.core.engine import decide
from slurm_tiresias.core.features.make import make_policy
from slurm_tiresias.core.job import Job, Snapshot
from slurm_tiresias.model import Action, Amount, JobState, Node, Plan, Request
from slurm_tiresias.settings import Config

NOW_S = 1_000_000.0
THRESHOLDS_GPU_S = (100.0, 200.0, 400.0, 800.0)
CPUS_PER_GPU = 2
PARTITION = "gpu"


def gpus(
    count: int, *, nodes: int = 1, gpu_type: str = "", spanning: bool = False, **more: Any
) -> Request:
    """The request of ``--gres=gpu:COUNT -N NODES``, or with ``spanning`` of ``--gpus=COUNT``."""
    more.setdefault("partitions", (PARTITION,))
    if spanning:
        return Request(Amount({gpu_type: 1}, cpus=1), chunks=count, **more)
    chunk = Amount({gpu_type: count}, cpus=1)
    return Request(
        chunk, chunks=nodes, max_chunks_per_node=1, min_nodes=nodes, max_nodes=nodes, **more
    )


def job(job_id: str, request: Request, *, tier: int = 0, **more: Any) -> Job:
    """A waiting job whose attained service puts it into this tier."""
    attained_gpu_s = (0.0, *THRESHOLDS_GPU_S)[tier]
    more.setdefault("submitted_s", float(job_id) if job_id.isdigit() else 0.0)
    more.setdefault("attained_gpu_s", attained_gpu_s)
    more.setdefault("attained_since_promotion_gpu_s", attained_gpu_s)
    if tier:
        more.setdefault("first_started_s", more["submitted_s"])
    return view(job_id, JobState.PENDING, request, **more)


def configured(**tables: Any) -> Config:
    """Tiers at 100, 200, 400 and 800 GPU-seconds and no minimum run time, unless given
    otherwise."""
    defaults: dict[str, Any] = {
        "policy": {"thresholds_gpu_s": list(THRESHOLDS_GPU_S)},
        "preemption": {"min_run_s": 0},
    }
    merged = {name: defaults.get(name, {}) | tables.get(name, {}) for name in defaults | tables}
    return parse(merged)


def cluster(drawing: str, jobs: Sequence[Job], **node_fields: Any) -> Snapshot:
    """The drawn cluster; jobs that appear in the drawing run where they are drawn."""
    rows = _rows(drawing)
    held = {one.job_id: _held(rows, one.job_id) for one in jobs}
    nodes = [_node(name, len(symbols), node_fields) for name, symbols in rows.items()]
    placed = [_running(one, held[one.job_id]) if held[one.job_id] else one for one in jobs]
    if foreign := _held(rows, "#"):
        stranger = job("999999", gpus(1), managed=False, unmanaged_because="not requeueable")
        placed.append(_running(stranger, foreign))
    drawn = {symbol for symbols in rows.values() for symbol in symbols} - {".", "#"}
    assert drawn <= held.keys(), f"drawn but not described: {drawn - held.keys()}"
    return Snapshot(NOW_S, tuple(nodes), tuple(placed))


def plan_for(snapshot: Snapshot, config: Config | None = None) -> Plan:
    config = config or configured()
    return decide(snapshot, make_policy(config.policy), config)


def after(snapshot: Snapshot, plan: Plan) -> dict[str, Counter[str]]:
    """Return the holder of each GPU once the plan has been carried out."""
    held: dict[str, Counter[str]] = {node.name: Counter() for node in snapshot.nodes}
    for one in snapshot.jobs:
        decision = plan.decisions[one.job_id]
        symbol = one.job_id if one.managed else "#"
        stays = one.state is JobState.RUNNING and decision.action is not Action.PREEMPT
        for node, amount in (one.allocation if stays else decision.start_on).items():
            held[node][symbol] += amount.gpu_count
    return held


def drawn(drawing: str) -> dict[str, Counter[str]]:
    """Parse a drawing for comparison with ``after``."""
    return {
        name: Counter(symbol for symbol in symbols if symbol != ".")
        for name, symbols in _rows(drawing).items()
    }


def expect(
    picture: str, jobs: Sequence[Job], config: Config | None = None, **node_fields: Any
) -> Plan:
    """Check the plan for a cluster that is drawn before and after it: ``n1  1 1 . . -> 1 1 2 2``.

    A node without an arrow stays as it is.
    """
    rows = [row.partition("->") for row in picture.strip().splitlines()]
    snapshot = cluster("\n".join(before for before, _, _ in rows), jobs, **node_fields)
    plan = plan_for(snapshot, config)
    then = (f"{before.split()[0]} {change}" if change else before for before, _, change in rows)
    assert after(snapshot, plan) == drawn("\n".join(then))
    return plan


def _rows(drawing: str) -> dict[str, list[str]]:
    lines = [line.split() for line in drawing.strip().splitlines()]
    return {name: symbols for name, *symbols in lines}


def _node(name: str, gpu_count: int, fields: dict[str, Any]) -> Node:
    total = Amount({"": gpu_count}, cpus=gpu_count * CPUS_PER_GPU, memory_mb=1000)
    node = Node(name, total, partitions=frozenset({PARTITION}), available=not name.endswith("!"))
    return replace(node, **fields.get(name, {}))


def _held(rows: dict[str, list[str]], symbol: str) -> dict[str, Amount]:
    return {
        name: Amount({"": symbols.count(symbol)}, cpus=symbols.count(symbol))
        for name, symbols in rows.items()
        if symbol in symbols
    }


def _running(one: Job, allocation: dict[str, Amount]) -> Job:
    started_s = one.running_since_s if one.running_since_s is not None else 0.0
    return changed(
        one,
        state=JobState.RUNNING,
        allocation=allocation,
        running_since_s=started_s,
        first_started_s=one.first_started_s or started_s,
    )
