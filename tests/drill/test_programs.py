"""Drills on programs as users write them, two at a time in one folder: no false pass, no false
alarm, and each cause is named."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scripts.testbed.real_cluster import short_folder, started_cluster
from slurm_tiresias.cli.drill import FAILED, UNKNOWN
from tests.drill.programs import BROKEN, HEALTHY
from tests.drill.test_on_slurm import Drilled, User

pytestmark = [pytest.mark.slurm, pytest.mark.long]

OPTIONS = ("--nodes", "2", "--gpus", "2", "--no-accounting", "--slurm-conf-line", "KillWait=15")


@pytest.fixture(scope="module")
def drilled(readable: Path) -> Iterator[Mapping[str, Drilled]]:
    programs = {**BROKEN, **HEALTHY}
    with short_folder() as above, started_cluster(above, *OPTIONS) as cluster:
        above.chmod(0o777)
        user = User(cluster, readable, above)
        folder = user.place("project")
        with ThreadPoolExecutor(2) as pool:
            ended = pool.map(lambda name: _drill(user, folder, name), programs)
            yield dict(zip(programs, ended, strict=True))


def _drill(user: User, folder: Path, name: str) -> Drilled:
    return user.drill(folder, str({**BROKEN, **HEALTHY}[name].write(name, folder)))


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_program_fails_for_its_cause(drilled: Mapping[str, Drilled], name: str) -> None:
    one = drilled[name]
    assert one.code == FAILED, one
    nodes = [run["nodes"] for trial in one.said["trials"] for run in trial["runs"]]
    always_moved = all(before != after for before, after in itertools.pairwise(nodes))
    # Without a start on the same node the node may be the cause.
    assert one.causes <= {*BROKEN[name].finds, *(["other-node"] if always_moved else [])}, one


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_program_does_not_fail(drilled: Mapping[str, Drilled], name: str) -> None:
    one = drilled[name]
    assert one.code == (UNKNOWN if HEALTHY[name].unknown else 0), one
