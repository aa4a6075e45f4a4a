"""A controller's cycles on the in-memory Slurm, in which hours pass at once.

For behaviour of the controller itself. Whatever depends on Slurm is tested on a real cluster.
"""

from __future__ import annotations

from collections.abc import Mapping

from scripts.testbed.in_memory.records import Submission
from slurm_tiresias.config import parse
from slurm_tiresias.controller.cycle import ENFORCE, Cycles
from slurm_tiresias.model import Amount, Decision, JobState, JobStatus, Reason, Request
from slurm_tiresias.profiler.service import Profiler
from slurm_tiresias.profiler.store import ProfileStore
from slurm_tiresias.store.ledger import Ledger
from tests.slurm.contract import Asked, InMemorySite, job

INTERVAL_S = 0.5
WHOLE_NODE = Asked(gpus=4, per_node=True)
ONE_GPU = Asked(per_node=True)
Tables = Mapping[str, Mapping[str, object]]


def merged(*tables: Tables) -> dict[str, dict[str, object]]:
    """Settings table by table; later ones take precedence."""
    names = [name for each in tables for name in each]
    return {
        name: {k: v for each in tables for k, v in each.get(name, {}).items()} for name in names
    }


class Managed(InMemorySite):
    """Four nodes with four GPUs each, and a controller that runs two cycles per second.

    ``last`` is the result of the last cycle. Conditions are waited for by running cycles.
    """

    def __init__(self, ledger: Ledger, settings: Tables) -> None:
        super().__init__()
        self.config = parse(merged(settings))
        self.ledger = ledger
        self.restart()
        self.cycle()

    def restart(self) -> None:
        """Replace the controller by a new one, which knows what the ledger does."""
        profiler = Profiler(ProfileStore(None), self.config)
        self.cycles = Cycles(self.slurm, self.slurm.cluster(), self.ledger, self.config, profiler)

    def cycle(self, mode: str = ENFORCE, *, times: int = 1) -> None:
        for _ in range(times):
            self.slurm.advance(INTERVAL_S)
            self.last = self.cycles.run(mode)

    def pass_time(self) -> None:
        self.cycle()

    def submit_at_a_prompt(self, gpus: int, minutes: int) -> str:
        """Submit an ``salloc`` on one node."""
        request = Request(Amount({"": gpus}, 1), max_chunks_per_node=1, max_nodes=1)
        asked = Submission(request, batch=False, requeue=False, time_limit_s=60.0 * minutes)
        return self.slurm.submit(asked)

    def fill(self) -> list[str]:
        """Four jobs in the lower tier that hold all GPUs."""
        wall = [self.submit(WHOLE_NODE) for _ in range(4)]
        for key in wall:
            self.wait_for_tier(key, 1)
        return wall

    def seen(self, key: str) -> JobStatus:
        """The job as Slurm shows it now."""
        return job(self, key)

    def decision(self, key: str) -> Decision | None:
        """The last cycle's decision on a job."""
        return self.last.plan.decisions.get(key)

    def tier(self, key: str) -> int | None:
        decision = self.decision(key)
        return decision.tier if decision else None

    def events(self, kind: str) -> list[tuple[str, str]]:
        """The jobs with an event of this kind, each with the other job of the event."""
        found = self.ledger.events.last(100)
        return [(event.job_id, event.other) for event in found if event.kind == kind]

    def wait_for_tier(self, key: str, tier: int) -> None:
        self.wait_until(lambda: self.tier(key) == tier, f"{key} in tier {tier}")

    def wait_for_reason(self, key: str, reason: Reason) -> Decision:
        """Run cycles until the job's decision has this reason; return the decision."""

        def decision() -> Decision | None:
            found = self.decision(key)
            return found if found and found.reason is reason else None

        found = self.wait_until(decision, f"{key} because {reason.value}")
        assert found is not None
        return found

    def wait_for_state(self, key: str, state: JobState | None) -> None:
        self.wait_until(lambda: self.seen(key).state is state, f"{key} is {state}")
