"""The message after a ledger was rebuilt."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from slurm_tiresias.controller.rebuild import Rebuilt
from slurm_tiresias.errors import AlreadyRunningError
from slurm_tiresias.settings import Config
from tests.cli.running import Site, error_of
from tests.cli.test_main import FakeRun, fake_run

__all__ = ["fake_run"]

PLAIN = Rebuilt("/state/ledger.sqlite", "", 2, 3, 5400.0, False, (), (), 0, ())


@pytest.fixture
def rebuilt(fake_run: FakeRun, monkeypatch: pytest.MonkeyPatch) -> list[Rebuilt]:
    """Replace the result of the rebuild; the last element of this list is returned."""
    results = [PLAIN]

    def rebuild_ledger(_config: Config) -> Rebuilt:
        if fake_run.error:
            raise fake_run.error
        return results[-1]

    monkeypatch.setattr(fake_run, "rebuild_ledger", rebuild_ledger, raising=False)
    return results


def test_what_was_rebuilt_is_reported_in_one_line(site: Site, rebuilt: list[Rebuilt]) -> None:
    result = site.run("ledger", "rebuild")
    assert result.exit_code == 0 and rebuilt
    assert result.stdout == ("Rebuilt /state/ledger.sqlite: 2 jobs, 3 runs, 1.5 GPU-h attained.\n")


def test_what_could_not_be_rebuilt_is_reported(site: Site, rebuilt: list[Rebuilt]) -> None:
    rebuilt.append(
        replace(
            PLAIN,
            replaced="/state/old\x1b[2J",
            paused=True,
            incomplete=("7",),
            node_lists=("8", "9_1"),
            copied=12,
            lost=("events", "drills"),
        )
    )
    told = site.run("ledger", "rebuild").stdout.splitlines()[1:]
    assert told == [
        "What was there before lies in /state/old?[2J.",
        "Taken over from it: 12 rows.",
        "Lost, in whole or in part: events and drills.",
        "The controller stays paused until it is resumed.",
        "Accounting does not know every earlier run of job 7 yet; the controller asks it again.",
        "The controller will take away the node list of jobs 8 and 9_1, about to start when the "
        "ledger was lost. A list of its user's own is lost with it.",
    ]


def test_json_has_the_result(site: Site, rebuilt: list[Rebuilt]) -> None:
    told = json.loads(site.run("ledger", "rebuild", "--json").stdout)
    assert told == json.loads(json.dumps(asdict(rebuilt[-1])))


def test_a_controller_must_not_run(site: Site, fake_run: FakeRun, rebuilt: list[Rebuilt]) -> None:
    fake_run.error = AlreadyRunningError("Another controller works in /state", "Use that one")
    result = site.run("ledger", "rebuild")
    assert result.exit_code == 9 and rebuilt
    assert error_of(result).startswith("Another controller works")
