"""A controller's cycles on the in-memory Slurm, in which hours pass at once.

For behaviour of the controller itself. Whatever depends on Slurm is tested on a real cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from scripts.testbed.in_memory.records import Submission
from slurm_tiresias.config import parse
from slurm_tiresias.controller.cycle import ENFORCE, Cycle, Cycles
from slurm_tiresias.model import Amount, Decision, JobState, JobStatus, Reason, Request
from slurm_tiresias.profiler.service import Profiler
from slurm_tiresias.profiler.store import ProfileStore
from slurm_tiresias.store.ledger import Ledger
from tests.slurm.contract import Asked, InMemorySite, job

INTERVAL_S = 0.5
PATIENCE_S = 120.0
WHOLE_NODE = Asked(gpus=4, per_node=True)
ONE_GPU = Asked(per_node=True)


class Managed:
    """Four nodes with four GPUs each, and a controller that runs two cycles per second."""

    def __init__(self, ledger: Ledger, settings: Mapping[str, Mapping[str, object]]) -> None:
        config = self.config = parse({name: dict(table) for name, table in settings.items()})
        self._site = InMemorySite()
        slurm = self.slurm = self._site.slurm
        self.ledger = ledger
        self._cycles = Cycles(
            slurm, slurm.cluster(), ledger, config, Profiler(ProfileStore(None), config)
        )
        self.cycle()

    def cycle(self, mode: str = ENFORCE) -> None:
        self._site.slurm.advance(INTERVAL_S)
        self._last = self._cycles.run(mode)

    def submit(self, asked: Asked) -> str:
        return self._site.submit(asked)

    def submit_at_a_prompt(self, gpus: int, minutes: int) -> str:
        """Submit an ``salloc`` on one node."""
        request = Request(Amount({"": gpus}, 1), max_chunks_per_node=1, max_nodes=1)
        asked = Submission(request, batch=False, requeue=False, time_limit_s=60.0 * minutes)
        return self._site.slurm.submit(asked)

    def step_clock(self, seconds: float) -> None:
        self._site.slurm.step_clock(seconds)

    def cancel(self, key: str) -> None:
        self._site.cancel(key)

    def hold(self, key: str) -> None:
        self._site.hold(key)

    def release(self, key: str) -> None:
        self._site.release(key)

    def requeue(self, key: str) -> None:
        self._site.requeue(key)

    @property
    def last(self) -> Cycle:
        """The result of the last cycle."""
        return self._last

    @property
    def cycles(self) -> Cycles:
        return self._cycles

    def fill(self) -> list[str]:
        """Four jobs in the lower tier that hold all GPUs."""
        wall = [self.submit(WHOLE_NODE) for _ in range(4)]
        for key in wall:
            self.wait_for_tier(key, 1)
        return wall

    def seen(self, key: str) -> JobStatus:
        """The job as Slurm shows it now."""
        return job(self._site, key)

    def decision(self, key: str) -> Decision | None:
        """The last cycle's decision on a job."""
        return self._last.plan.decisions.get(key)

    def tier(self, key: str) -> int | None:
        decision = self.decision(key)
        return decision.tier if decision else None

    def events(self, kind: str) -> list[tuple[str, str]]:
        """The jobs with an event of this kind, each with the other job of the event."""
        found = self.ledger.events.last(100)
        return [(event.job_id, event.other) for event in found if event.kind == kind]

    def wait_until(self, holds: Callable[[], object], what: str) -> None:
        """Run cycles until the condition holds after one."""
        for _ in range(round(PATIENCE_S / INTERVAL_S)):
            if holds():
                return
            self.cycle()
        raise AssertionError(f"not within {PATIENCE_S:g} s: {what}")

    def wait_for_tier(self, key: str, tier: int) -> None:
        self.wait_until(lambda: self.tier(key) == tier, f"{key} in tier {tier}")

    def wait_for_reason(self, key: str, reason: Reason) -> Decision:
        """Run cycles until the job's decision has this reason; return the decision."""

        def decision() -> Decision | None:
            found = self.decision(key)
            return found if found and found.reason is reason else None

        self.wait_until(decision, f"{key} because {reason.value}")
        found = decision()
        assert found is not None
        return found

    def wait_for_state(self, key: str, state: JobState | None) -> None:
        self.wait_until(lambda: self.seen(key).state is state, f"{key} is {state}")
