"""Each rule combined with each other setting: its effect must be the same as alone.

``docs/explanation/algorithm.md`` has the table. The rules run cycle by cycle on the in-memory
Slurm.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from slurm_tiresias.model import JobState, Lane
from slurm_tiresias.store.ledger import Ledger
from tests.controller.in_memory import WHOLE_NODE, Managed, Tables, merged
from tests.controller.test_idle_gpus import AFTER_S, Site

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "algorithm.md"

SETTINGS: Mapping[str, Tables] = {
    "`policy.estimates`": {"policy": {"estimates": ["reports"]}},
    '`policy.charge = "user"`': {"policy": {"charge": "user"}},
    '`policy.charge = "account"`': {"policy": {"charge": "account"}},
    '`priority.write = "site-factor"`': {"priority": {"write": "site-factor"}},
    "`[interactive]`": {"interactive": {"gpus_per_user": 2}},
    "`[idle_gpus]`": {"idle_gpus": {"after_s": AFTER_S, "action": "rank-last"}},
    '`idle_gpus.action = "leave"`': {
        "idle_gpus": {"after_s": AFTER_S, "action": "leave", "leave_after_s": 3 * AFTER_S}
    },
    "`preemption.drilled_min_run_s`": {"preemption": {"min_run_s": 1, "drilled_min_run_s": 0.5}},
}


def a_short_job_preempts_one_of_a_lower_tier(ledger: Ledger, tables: Tables) -> None:
    managed = Managed(ledger, merged({"policy": {"thresholds_gpu_s": [20.0]}}, tables))
    managed.fill()
    short = managed.submit(WHOLE_NODE)
    managed.wait_for_state(short, JobState.RUNNING)
    assert [other for _, other in managed.events("preempted")] == [short]


def a_job_at_a_prompt_goes_first(ledger: Ledger, tables: Tables) -> None:
    managed = Managed(ledger, merged({"policy": {"thresholds_gpu_s": [20.0]}}, tables))
    managed.fill()
    for _ in range(4):
        managed.submit(WHOLE_NODE)
    prompt = managed.submit_at_a_prompt(1, minutes=60)
    managed.wait_for_state(prompt, JobState.RUNNING)
    shown = {job.job_id: job for job in managed.last.snapshot.jobs}
    assert shown[prompt].lane is Lane.INTERACTIVE
    managed.cycle(times=40)
    assert managed.seen(prompt).state is JobState.RUNNING


def an_idle_job_is_preempted(ledger: Ledger, tables: Tables) -> None:
    site = Site(ledger, Path(ledger.path).parent, tables=tables)
    idle = site.jobs[0]
    site.busy[idle] = 0
    waiting = site.submit(WHOLE_NODE)
    site.go_on(2 * AFTER_S)
    assert (idle, waiting) in site.events("preempted")
    assert {victim for victim, _ in site.events("preempted")} == {idle}


RULES: Mapping[str, Callable[[Ledger, Tables], None]] = {
    "a short job preempts one of a lower tier": a_short_job_preempts_one_of_a_lower_tier,
    "a job at a prompt goes first": a_job_at_a_prompt_goes_first,
    "an idle job is preempted by one of its own tier": an_idle_job_is_preempted,
}


def with_folder(tables: Tables, ledger: Ledger) -> Tables:
    """Set the folder of the nodes' samples, if they are needed."""
    folder: Tables = {"profiler": {"collect_dir": str(Path(ledger.path).parent)}}
    return merged(tables, folder) if "idle_gpus" in tables else tables


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("rule", RULES)
def test_a_rule_holds_with_another_setting(ledger: Ledger, rule: str, setting: str) -> None:
    RULES[rule](ledger, with_folder(SETTINGS[setting], ledger))


def test_all_settings_together(ledger: Ledger) -> None:
    every = merged(*(tables for setting, tables in SETTINGS.items() if "account" not in setting))
    a_job_at_a_prompt_goes_first(ledger, with_folder(every, ledger))


def test_the_page_has_each_rule_and_setting() -> None:
    text = PAGE.read_text(encoding="utf-8")
    table = text[text.index("| with | ") :].split("\n\n")[0]
    header, _, *rows = table.splitlines()
    assert cells(header)[1:] == list(RULES)
    assert [cells(row)[0] for row in rows] == list(SETTINGS)
    assert all(re.fullmatch("yes.*", cell) for row in rows for cell in cells(row)[1:])


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]
