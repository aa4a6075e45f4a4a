"""Shadow mode: what would have been done is recorded."""

from __future__ import annotations

from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.model import Plan, Reason
from slurm_tiresias.slurm.hostlist import folded

_WHAT = {
    Reason.IDLE_GPUS: "be requeued for its idle GPUs",
    Reason.HUNG: "be requeued because it hangs",
}


class ShadowRecord:
    """Records what plans would have done."""

    def __init__(self, job_store: JobStore) -> None:
        self._job_store = job_store
        self._planned: dict[str, tuple[str, str]] = {}

    def record(self, plan: Plan, now_s: float) -> None:
        """Record what would have been done, once for each change of the plan."""
        planned = {d.job_id: (f"start on {folded(d.start_on)}", "") for d in plan.starts}
        for decision in plan.preemptions:
            what = _WHAT.get(decision.reason, "be preempted")
            planned[decision.job_id] = (what, decision.preempted_for)
        for key, (what, other) in planned.items():
            if self._planned.get(key) != (what, other):
                self._job_store.events.note(now_s, "would", key, what, other)
        self._planned = planned
        self._job_store.commit()
