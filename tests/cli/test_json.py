"""The output of ``--json`` is as documented, and keeps every field that it ever had."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scripts.tools.json_reference import COMMANDS, fields_of, reference
from slurm_tiresias.model import PublishedGpuUse, PublishedHung
from slurm_tiresias.status.published import (
    PublishedCoverage,
    PublishedEstimate,
    PublishedHold,
    PublishedNode,
    PublishedStandby,
    PublishedStart,
)
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.records import EventRecord, PreemptionCost, RunProgressRecord, RunRecord
from tests.cli.running import ROOT, Site
from tests.cli.states import NOW_S, busy_state, progress, waiting
from tests.controller.test_life import job

RECORDED = Path(__file__).with_name("recorded") / "json-schema-1.txt"
"""The fields that programs may rely on: lines are added here, never changed."""

EMPTY = ("parts[]", "blocking_jobs[].blockers[]", "events[]")
"""Lists that are empty for one of the commands in this example."""

JSON_OF: dict[type, tuple[str, ...]] = {
    str: ("string",),
    bool: ("boolean",),
    int: ("integer", "number"),
    float: ("number",),
}


def test_the_page_is_up_to_date() -> None:
    written = (ROOT / "docs" / "reference" / "json.md").read_text(encoding="utf-8")
    assert reference() + "\n" == written, "run scripts/dev generate"


def test_no_json_field_is_removed_or_changed() -> None:
    there = {
        f"{command} {p}: {kind}" for command in COMMANDS for p, kind in fields_of(command).items()
    }
    recorded = set(RECORDED.read_text(encoding="utf-8").splitlines())
    assert not recorded - there, "schema 1 had these: keep them, or it is another schema"
    assert not there - recorded, f"new fields: add these lines to {RECORDED.name}"


def found_in(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Return every field of real output by its path, as in the docs."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from found_in(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for inner in value:
            yield from found_in(inner, f"{path}[]")
    else:
        yield path, value


def as_documented(path: str, value: Any, documented: dict[str, str]) -> bool:
    parent = path.rpartition(".")[0]
    if documented.get(parent, "").startswith("object of"):
        return documented[parent].removeprefix("object of ").startswith(JSON_OF[type(value)])
    kind = documented.get(path, "")
    if value is None:
        return kind.endswith(" or null")
    return kind.removesuffix(" or null") in JSON_OF[type(value)]


@pytest.fixture
def busy_site(site: Site) -> Site:
    """A state in which every list has an element."""
    node = PublishedNode("gpu01", 4, True, "mixed", (PublishedHold("40712", 4, 0),))
    standby = PublishedStandby("b", 7, False)
    estimate = PublishedEstimate("reports", 3600.0)
    gpu_use = PublishedGpuUse(4, 0, NOW_S - 7200, True, True, 28_800.0)
    start = PublishedStart(NOW_S, 2.0, NOW_S, NOW_S, NOW_S, NOW_S, NOW_S, NOW_S)
    hung = PublishedHung(NOW_S - 700, 600.0, 4, False, 4, 0.14)
    shown, says = progress(370), ("a",)
    telling = (
        replace(j, progress=shown, estimate=estimate, gpu_use=gpu_use, says=says)
        for j in busy_state().jobs
    )
    telling = (replace(j, start=start, hung=hung) for j in telling)
    jobs = (*telling, waiting("50_1"), waiting("50_2"))
    more = {"nodes": (node,), "standbys": (standby,), "failed_cycles": {"slurm": 2}}
    held = PublishedCoverage(100, 0.9, 0.5)
    site.publish(busy_state(jobs=jobs, starts_held=held, **more))
    with closing(Ledger(site.folder / "ledger.sqlite")) as ledger, ledger.transaction():
        ledger.jobs.put([replace(job("40729", "tomas"), ended_s=50.0)])
        ledger.runs.put([RunRecord("40729", 20.0, 50.0, 30.0, 4, True)])
        told = RunProgressRecord("40729", 0, "reports", "running", 0, 37, 100, 45.0, 45.0)
        ledger.progress.put([told])
        ledger.costs.put([PreemptionCost("40729", 20.0, 0, 50.0, 45.0, 4)])
        ledger.events.put([EventRecord(50.0, "preempted", "40729", "40600", "restart 1")])
    return site


@pytest.mark.parametrize("command", COMMANDS)
def test_the_printed_reference_is_what_the_page_says(busy_site: Site, command: str) -> None:
    jobs = {"status": (), "explain ARRAY": ("50",)}.get(command, ("40729",))
    result = busy_site.run(command.split()[0], *jobs, "--json")
    assert result.stdout.count("\n") == 1
    documented = fields_of(command)
    said = dict(found_in(json.loads(result.stdout)))
    assert said["schema"] == 1
    wrong = {p: v for p, v in said.items() if not as_documented(p, v, documented)}
    assert not wrong
    missing = {path for path, kind in documented.items() if not kind.startswith("object")}
    assert all(path.startswith(EMPTY) or path.endswith("victims[]") for path in missing - set(said))


def test_an_empty_output_has_every_documented_field(site: Site) -> None:
    site.publish(busy_state(jobs=(), events=()))
    said = json.loads(site.run("status", "--json").stdout)
    names = {path.partition(".")[0].removesuffix("[]") for path in fields_of("status")}
    assert set(said) == names
    assert said["at_s"] == NOW_S - 4
