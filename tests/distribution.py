"""A pytest plugin: which tests run one after the other on one worker, and which start first.

Tests on a real cluster mostly wait, all others compute: both kinds are run side by side, so that
the processors always have something to do. A worker takes the next unit of tests when it is nearly
done with its last.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

TOGETHER = ("tests/spank/", "tests/monitor/")
"""Folders whose tests share fixtures that are expensive to build. Otherwise a unit is a file."""

REPORTING = tuple(f"tests/spank/test_{name}.py" for name in ("drill", "progress", "saves"))
"""Those of them whose jobs report; they run beside the others on a separate cluster."""

APART = ("tests/slurm/test_controller.py", "tests/faults/test_wrong_clock.py")
"""Files whose tests share only the cluster of all tests: each test is a unit."""

LONGEST = (
    "tests/spank/",
    "tests/slurm/test_hostile_users.py",
    "tests/testbed/test_cluster.py",
    "tests/cli/test_bad_input.py",
    "tests/drill/",
    "tests/slurm/test_everybodys_job.py",
    "tests/slurm/test_contract.py",
    "tests/docs/test_commands.py",
    "tests/controller/test_socket.py",
    "tests/monitor/",
    "tests/slurm/test_private_data.py",
    "tests/faults/",
    "tests/slurm/test_controller.py",
    "tests/profiler/test_gpu_sampler.py",
    "tests/lifecycle/",
    "tests/properties/",
    "tests/slurm/",
    "tests/report/",
    "tests/simulator/",
)
"""Files and folders that take longest, the longest first: they start first."""


def unit_of(test: str) -> str:
    """Return the unit of a test, given its node id."""
    file = test.partition("::")[0]
    if file in APART:
        return test
    if file in REPORTING:
        return "tests/spank/ with reports"
    return next((folder for folder in TOGETHER if file.startswith(folder)), file)


def in_order(units: Iterable[str], waiting: set[str]) -> list[str]:
    """Return the units in the order of starting: the longest of either kind first, the kinds
    mixed."""
    kinds: list[list[str]] = [[], []]
    for unit in sorted(units, key=_rank):
        kinds[unit in waiting].append(unit)
    places = {
        unit: (number + 0.5) / len(kind) for kind in kinds for number, unit in enumerate(kind)
    }
    return sorted(places, key=places.__getitem__)


def _rank(unit: str) -> int:
    """Return the place of a unit among the longest."""
    found = (number for number, long in enumerate(LONGEST) if unit.startswith(long))
    return next(found, len(LONGEST))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    units = dict.fromkeys(unit_of(item.nodeid) for item in items)
    waiting = {unit_of(item.nodeid) for item in items if item.get_closest_marker("slurm")}
    places = {unit: place for place, unit in enumerate(in_order(units, waiting))}
    items.sort(key=lambda item: places[unit_of(item.nodeid)])


class UnitScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out whole units, in the order in which they were collected."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> UnitScheduling:
    return UnitScheduling(config, log)
