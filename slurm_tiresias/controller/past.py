"""What the ledger has for a new controller's features of the last days."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from slurm_tiresias.controller.drilled import DrilledPrograms
from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.core.features import failed_runs
from slurm_tiresias.core.features.charge import EndedRun
from slurm_tiresias.core.features.drilled import Program
from slurm_tiresias.core.features.in_order import Past
from slurm_tiresias.core.features.interactive import WINDOW_S
from slurm_tiresias.model import JobAccount, Lane, RunRecord
from slurm_tiresias.settings import Config
from slurm_tiresias.store.retention import charged_since_s


class LedgersPast(Past):
    """What the ledger has of the time before ``now_s``."""

    def __init__(
        self, config: Config, now_s: float, job_store: JobStore, drilled: DrilledPrograms
    ) -> None:
        super().__init__(job_store.lifecycles.costs.recent_losses(now_s), now_s)
        self._charge_by = config.policy.charge
        self._ledger = job_store.changes.ledger
        self._drilled = drilled
        self._nodes = job_store.nodes.all

    def ended_runs(self) -> Iterable[EndedRun]:
        since_s = charged_since_s(self._ledger, self.now_s)
        return self._ledger.runs.ended_since(since_s, self._charge_by)

    def runs_in_lane(self) -> Iterable[tuple[str, RunRecord]]:
        return self._ledger.runs.in_lane(Lane.INTERACTIVE, self.now_s - WINDOW_S)

    def recent_runs(self) -> Iterable[tuple[JobAccount, RunRecord]]:
        since_s = self.now_s - failed_runs.LOOKS_BACK_S
        jobs = {job.key: job for job in self._ledger.jobs.alive_since(since_s)}
        runs = self._ledger.runs.select("WHERE end_s > ? ORDER BY end_s", since_s)
        return [(jobs[run.key], run) for run in runs if run.key in jobs]

    def cleared_s(self) -> Mapping[str, float]:
        return {node.name: node.cleared_s for node in self._nodes.values()}

    def drilled(self) -> Mapping[Program, float]:
        return self._drilled.programs
