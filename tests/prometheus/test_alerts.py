"""Each alert fires for its cause and is silent otherwise, in promtool's own simulation."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts.testbed.patience import PATIENCE_S
from tests.prometheus.expressions import RULES, SCRAPE, alerts
from tests.prometheus.programs import program

SELF = 'instance="a", job="tiresias"'
MINUTES = 1500


@dataclass(frozen=True)
class Case:
    """Series with one value per minute, and whether an alert fires after this many minutes."""

    alert: str
    fires: bool
    series: Mapping[str, str]
    after_minutes: int = 60


def always(value: float) -> str:
    return f"{float(value):g}x{MINUTES}"


def rising(step: float) -> str:
    return f"0+{step:g}x{MINUTES}"


def one(name: str, labels: str = "") -> str:
    return f"{name}{{{', '.join(filter(None, (SELF, labels)))}}}"


def cycles(seconds: float) -> Mapping[str, str]:
    """Six cycles a minute, each that long, every ten seconds."""
    return {
        one("tiresias_cycle_seconds_sum"): rising(6 * seconds),
        one("tiresias_cycle_seconds_count"): rising(6),
        one("tiresias_interval_seconds"): always(10),
    }


def last_cycles(at_s: str) -> Mapping[str, str]:
    return {
        one("tiresias_last_cycle_timestamp_seconds"): at_s,
        one("tiresias_interval_seconds"): always(10),
    }


def waits(*seconds: float) -> Mapping[str, str]:
    return {
        one("tiresias_longest_wait_seconds", f'tier="{tier}"'): always(wait_s)
        for tier, wait_s in enumerate(seconds)
    }


def storm(preemptions_a_minute: float, running: int) -> Mapping[str, str]:
    half = always(running / 2)
    return {
        one("tiresias_preemptions_total"): rising(preemptions_a_minute),
        one("tiresias_jobs", 'tier="0", state="running"'): half,
        one("tiresias_jobs", 'tier="1", state="running"'): half,
        one("tiresias_jobs", 'tier="1", state="pending"'): always(1000),
    }


def modes(*of_each: str) -> Mapping[str, str]:
    return {
        f'tiresias_mode{{job="tiresias", instance="{number}", mode="{mode}"}}': always(mode == its)
        for number, its in enumerate(of_each)
        for mode in ("enforce", "shadow", "paused", "standby")
    }


def pair(standbys: int, term: int = 3) -> Mapping[str, str]:
    return {one("tiresias_standbys"): always(standbys), one("tiresias_term"): always(term)}


def writes(refused: float) -> Mapping[str, str]:
    return {
        one("tiresias_writes_total"): rising(10),
        one("tiresias_refused_writes_total"): rising(refused),
    }


def trouble(kind: str, value: int) -> Mapping[str, str]:
    return {one("tiresias_trouble", f'kind="{kind}"'): always(value)}


def failed(step: float) -> Mapping[str, str]:
    return {one("tiresias_failed_cycles_total", 'kind="slurm-unreachable"'): rising(step)}


CASES = (
    Case("TiresiasDown", True, {one("up"): always(0)}),
    Case("TiresiasDown", True, {}),
    Case("TiresiasDown", False, {one("up"): always(1)}),
    Case("TiresiasNobodyActs", True, modes("standby", "standby")),
    Case("TiresiasNobodyActs", False, modes("standby", "enforce")),
    Case("TiresiasNobodyActs", False, modes("shadow")),
    Case("TiresiasNobodyStandsBy", True, pair(0)),
    Case("TiresiasNobodyStandsBy", False, pair(1)),
    Case("TiresiasNobodyStandsBy", False, pair(0, term=0)),
    Case("TiresiasStale", True, last_cycles(always(60))),
    Case("TiresiasStale", False, last_cycles(f"0+60x{MINUTES}")),
    Case("TiresiasCyclesFail", True, failed(1)),
    Case("TiresiasCyclesFail", False, failed(0)),
    Case("TiresiasBacksOff", True, {one("tiresias_consecutive_failed_cycles"): always(3)}),
    Case("TiresiasBacksOff", False, {one("tiresias_consecutive_failed_cycles"): "0 1 2 0x1500"}),
    Case("TiresiasLedgerDamaged", True, trouble("damaged-ledger", 1)),
    Case("TiresiasLedgerDamaged", False, trouble("ledger", 1)),
    Case("TiresiasLedgerUnusable", True, trouble("ledger", 1)),
    Case("TiresiasLedgerUnusable", False, trouble("ledger", 0)),
    Case("TiresiasSlowCycles", True, cycles(6)),
    Case("TiresiasSlowCycles", False, cycles(4)),
    Case("TiresiasPreemptionStorm", True, storm(5, running=40)),
    Case("TiresiasPreemptionStorm", False, storm(5, running=400)),
    Case("TiresiasPreemptionStorm", False, storm(1, running=4)),
    Case("TiresiasTiersStarve", True, waits(100, 90_000, 100_000)),
    Case("TiresiasTiersStarve", False, waits(100, 100, 100_000)),
    Case("TiresiasWritesRefused", True, writes(refused=3)),
    Case("TiresiasWritesRefused", False, writes(refused=0.5)),
    Case(
        "TiresiasAccountingSilent", True, {one("tiresias_accounting_failures_total"): rising(0.5)}
    ),
    Case("TiresiasAccountingSilent", False, {one("tiresias_accounting_failures_total"): rising(0)}),
    Case("TiresiasNotPublished", True, {one("tiresias_unpublished_states_total"): rising(1)}),
    Case("TiresiasNotPublished", False, {one("tiresias_unpublished_states_total"): rising(0)}),
    Case("TiresiasWarns", True, {one("tiresias_warning"): always(1)}),
    Case("TiresiasWarns", False, {one("tiresias_warning"): always(0)}),
    Case("TiresiasJobsStandStill", True, {one("tiresias_quiet_jobs"): always(2)}),
    Case("TiresiasJobsStandStill", False, {one("tiresias_quiet_jobs"): always(0)}),
    Case("TiresiasJobsHang", True, {one("tiresias_hung_jobs"): always(1)}),
    Case("TiresiasJobsHang", False, {one("tiresias_hung_jobs"): always(0)}),
    Case("TiresiasJobsLeaveGpusIdle", True, {one("tiresias_idle_gpu_jobs"): always(2)}),
    Case("TiresiasJobsLeaveGpusIdle", False, {one("tiresias_idle_gpu_jobs"): always(0)}),
    Case("TiresiasJobsKeepNothing", True, {one("tiresias_stuck_jobs"): always(1)}),
    Case("TiresiasJobsKeepNothing", False, {one("tiresias_stuck_jobs"): always(0)}),
    Case("TiresiasNodeSuspected", True, {one("tiresias_suspected_nodes"): always(1)}),
    Case("TiresiasNodeSuspected", False, {one("tiresias_suspected_nodes"): always(0)}),
    Case("TiresiasPaused", True, modes("paused"), after_minutes=24 * 60 + 1),
    Case("TiresiasPaused", False, modes("paused"), after_minutes=24 * 60 - 1),
)


def promtool(*arguments: str) -> None:
    command = [program("promtool"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_finds_nothing_wrong_with_the_rules_and_the_scrape_configuration() -> None:
    promtool("check", "rules", str(RULES))
    promtool("check", "config", str(SCRAPE))


def test_each_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    file = tmp_path / "alerts.json"
    tests = {"rule_files": [str(RULES)], "tests": [_as_test(case) for case in CASES]}
    file.write_text(json.dumps(tests))
    promtool("test", "rules", str(file))


def test_every_alert_has_a_firing_and_a_silent_test_case() -> None:
    fires = {case.alert for case in CASES if case.fires}
    silent = {case.alert for case in CASES if not case.fires}
    assert fires == silent == set(alerts())


def _as_test(case: Case) -> dict[str, object]:
    query = f'count(ALERTS{{alertname="{case.alert}", alertstate="firing"}})'
    return {
        "name": f"{case.alert} {'fires' if case.fires else 'is silent'}: {dict(case.series)}",
        "interval": "1m",
        "input_series": [{"series": s, "values": values} for s, values in case.series.items()],
        "promql_expr_test": [
            {
                "expr": query,
                "eval_time": f"{case.after_minutes}m",
                "exp_samples": [{"labels": "{}", "value": 1}] if case.fires else [],
            }
        ],
    }
