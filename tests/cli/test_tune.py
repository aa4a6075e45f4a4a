"""The command ``tune``: its output, and the input that it refuses."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path

import pytest

from slurm_tiresias.config import parse
from slurm_tiresias.settings.policy import PolicyConfig
from tests.cli.running import Site, error_of

SMALL = ("tune", "--workload", "philly-like:60", "--cluster", "2x4", "--workers", "1")


def test_the_evidence_fits_80_columns_and_ends_in_lines_to_paste(site: Site) -> None:
    result = site.run(*SMALL)
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "warning: " in result.stdout
    assert "if half of the jobs report" in " ".join(result.stdout.split())
    words = " ".join(result.stdout.split())
    assert "saves: 40 % save when asked to, 40 % save every 30 minutes" in words
    under = re.search(r"under the better of slurm-users and best-effort, ([a-z-]+), the a", words)
    assert under is not None and under[1] in ("slurm-users", "best-effort")
    head, mark, fragment = result.stdout.partition("[policy]")
    assert re.search(r"^\* +6,24,96,384,1536 +6 ", head, re.MULTILINE) and "AVERAGE" in head
    assert parse(tomllib.loads(mark + fragment)).policy == PolicyConfig()


def test_json_has_the_advice_its_evidence_and_its_warnings(site: Site) -> None:
    first, second = (site.run(*SMALL, "--objective", "p95", "--json").stdout for _ in range(2))
    assert first == second
    answer = json.loads(first)
    assert answer["recommended"]["cell"]["thresholds_gpu_s"] == list(
        PolicyConfig().thresholds_gpu_s
    )
    assert answer["recommended"] == answer["default"]
    assert (answer["objective"], answer["failed"]) == ("p95", [])
    assert {row["tiers"] for row in answer["evidence"]} == {2, 3, 4, 5, 6}
    assert answer["if_jobs_told_more"].keys() == {
        *("half of the jobs report", "all jobs report", "no history counts")
    }
    assert answer["under_baselines"].keys() == {"slurm-users", "best-effort"}
    assert answer["config"]["simulation"]["saves"]["told"] == 0.0
    assert any("jobs are too few" in warning for warning in answer["warnings"])
    assert answer["jobs"] + answer["cannot_run_on_the_cluster"] == 60
    assert (answer["config_file"], answer["config"]["preemption"]["min_run_s"]) == (None, 0)


@pytest.mark.parametrize(
    ("sweep", "first_column"),
    [("thresholds", ["1", "0.5", "2", "4"]), ("tiers", ["1", "1,2", "1,2,4"]), ("knob", ["1"] * 5)],
)
def test_a_sweep_has_a_line_for_every_setting_of_both_policies(
    site: Site, sweep: str, first_column: list[str]
) -> None:
    result = site.run(*SMALL, "--sweep", sweep)
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
    rows = [line.split() for line in result.stdout.splitlines() if line.startswith("tiresias-")]
    assert [row[1] for row in rows] == first_column * 2
    assert [row[4] for row in (rows[0], rows[len(first_column)])] == ["1.000", "1.000"]


def test_a_sweep_as_json_has_the_same_rows(site: Site) -> None:
    answer = json.loads(site.run(*SMALL, "--sweep", "knob", "--json").stdout)
    assert [row["cell"]["promote_knob"] for row in answer["rows"]] == [0, 8, 4, 2, 1] * 2
    assert answer["rows"][0]["average"] == 1.0


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--workload", "paper480", "--trace", "a.csv"],
        ["--workload", "paper480", "--from-sacct", "--since", "2026-01-31"],
        ["--from-sacct"],
        ["--workload", "paper480", "--since", "2026-01-31"],
        ["--workload", "magic"],
        ["--workload", "philly-like:0"],
        ["--workload", "philly-like:9999999"],
        ["--workload", "philly-like:10@0"],
        ["--workload", "philly-like:1", "--cluster", "8x8"],
        ["--trace", "/nowhere.csv"],
        ["--workload", "paper480", "--cluster", "0x4"],
        ["--workload", "paper480", "--overhead", "much"],
        ["--workload", "paper480", "--objective", "fame"],
        ["--workload", "paper480", "--sweep", "chimney"],
        ["--workload", "paper480", "--workers", "-1"],
        ["--workload", "paper480", "--slurm-time", "10"],
    ],
)
def test_invalid_options_are_one_line_and_exit_code_2(site: Site, arguments: list[str]) -> None:
    result = site.run("tune", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert error_of(result)


def test_with_a_configuration_candidates_are_compared_with_its_setting(site: Site) -> None:
    site.configure(
        '[policy]\nthresholds_gpu_s = [900]\npromote_knob = 4\norder = "entry"\n'
        "[preemption]\nmin_run_s = 300\n"
    )
    words = (*SMALL, "--config", str(site.config))
    shown = site.run(*words).stdout
    # The path of the configuration may be longer than a line, and broken.
    told = f"as {site.config} has it; protection: none preempted within 300 s"
    assert "".join(told.split()) in "".join(shown.split())
    assert "The present setting stays, 2 tiers cut at 0.25 GPU-hours" in " ".join(shown.split())
    assert shown.endswith("thresholds_gpu_s = [900]\n")
    answer = json.loads(site.run(*words, "--json").stdout)
    assert answer["config"]["preemption"]["min_run_s"] == 300
    assert answer["config"]["simulation"]["interval_s"] == 10
    cells = [row["cell"] for row in answer["evidence"]]
    assert {cell["promote_knob"] for cell in cells} == {4}
    assert answer["config"]["policy"]["order"] == "entry"
    assert [3600] in [cell["thresholds_gpu_s"] for cell in cells]
    without = json.loads(site.run(*SMALL, "--json").stdout)
    assert without["default"]["objective_s"] != answer["default"]["objective_s"]


def test_on_slurm_without_submitit_is_one_line(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    result = site.run(*SMALL, "--on-slurm")
    assert result.exit_code == 2
    assert "slurm-tiresias[tune]" in error_of(result)


def test_on_slurm_without_slurm_is_one_line_and_leaves_nothing(site: Site, tmp_path: Path) -> None:
    jobs_dir = tmp_path / "jobs"
    result = site.run(*SMALL, "--on-slurm", "--jobs-dir", str(jobs_dir), PATH=str(tmp_path))
    assert result.exit_code == 1
    assert "not in PATH" in error_of(result)
    assert list(jobs_dir.iterdir()) == []


def test_a_folder_that_slurm_cannot_write_logs_to_is_refused(site: Site, tmp_path: Path) -> None:
    result = site.run(*SMALL, "--on-slurm", "--jobs-dir", str(tmp_path / "100%"))
    assert result.exit_code == 2
    assert "without %" in error_of(result)
