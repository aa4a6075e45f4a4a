"""What a drill records of starts that it cannot watch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from slurm_tiresias.drill.observed import TrialKind
from slurm_tiresias.drill.rehearsal import DrillPlan, Rehearsal
from slurm_tiresias.settings.preemption import PreemptionConfig
from slurm_tiresias.slurm.user_jobs import Step, UserCommands, UserJob

FIRST_RUN = (
    {"kind": "up", "job": "17", "hertz": 100},
    {"kind": "line", "text": "step 1"},
    {
        "kind": "process",
        "pid": 5,
        "start": 1,
        "parent": 2,
        "command": "python3 t.py",
        "direct": True,
        "orphaned": False,
    },
)


class Watchers(Step):
    """A step whose watchers have printed all of their lines before the first is read."""

    def __init__(self, *said: Mapping[str, object]) -> None:
        self._said = [json.dumps({"at_s": 100.0, "node": "n1", **one}) for one in said]
        self.is_over = False

    def line(self, timeout_s: float) -> str | None:
        self.is_over = len(self._said) <= 1
        return self._said.pop(0) if self._said else None

    def order(self, words: str) -> None:
        return None

    def close(self) -> None:
        return None


class EndsAtOnce(UserCommands):
    """A Slurm with a job whose second start fails before anything can watch it."""

    def __init__(self) -> None:
        self.states = ["RUNNING"]
        self.output = Path()

    def job(self, job_id: str) -> UserJob:
        state = self.states[0]
        if len(self.states) > 1:
            self.states.pop(0)
        return UserJob(state, 0, ("n1",), "", "gpu", "", "", "", "", str(Path.cwd()), "1:0")

    def submit(
        self, options: Sequence[str], script: Sequence[str], environment: Mapping[str, str]
    ) -> str:
        self.output = Path(next(one for one in options if "--output=" in one).partition("=")[2])
        return "17"

    def requeue(self, job_id: str, *, ended: bool = False) -> None:
        self.states = ["PENDING", "FAILED"]

    def settings(self) -> tuple[str, float]:
        return "c", 0.0

    def step(self, job_id: str, nodes: int, told: Mapping[str, object]) -> Step:
        return Watchers(*FIRST_RUN)

    def look_at(self, node: str, like: UserJob, told: Mapping[str, object]) -> Step:
        return Watchers({"kind": "end"})

    def guard(self, job_id: str, folder: str) -> Callable[[], None]:
        return lambda: None

    def excluded(self, job_id: str) -> str:
        return ""

    def fits_without(self, options: Sequence[str], script: Sequence[str], excluded: str) -> bool:
        return False

    def start_soon(self, job_id: str, in_s: int, excluded: str) -> None:
        with self.output.open("a") as file:
            file.write("no such GPU\n")

    def signal(self, job_id: str, signal: str) -> None:
        return None

    def cancel(self, job_id: str) -> None:
        return None


def test_a_start_that_fails_before_it_is_watched_is_the_run_after_the_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = DrillPlan((), ("job.sh",), (TrialKind.START_UP,))
    drill = Rehearsal(EndsAtOnce(), plan, PreemptionConfig(), lambda text: None).run()
    after = drill.trials[0].after
    assert after is not None and (after.number, after.ended) == (1, "FAILED")
    assert drill.last_lines[-1] == "no such GPU"
