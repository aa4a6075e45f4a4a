"""``tiresias-slurm doctor`` and ``init`` without a Slurm, and on narrow screens."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from scripts.tools.reference_pages import checks
from slurm_tiresias.config import load
from slurm_tiresias.settings import Config
from slurm_tiresias.simulator.sweep import Cell, Measured
from slurm_tiresias.simulator.tune import DEFAULT_GPU_S
from slurm_tiresias.simulator.workload import Workload
from slurm_tiresias.text import cells
from tests.cli.running import ROOT, Site, error_of
from tests.doctor.pictures import RELEASES, partition, sound, with_settings
from tests.simulator.test_tune import as_the_default, history, measured

CONF = "ClusterName=c\nJobRequeue=0\nKillWait=7\nProctrackType=proctrack/linuxproc\n"


@pytest.fixture
def bare(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A machine with slurm.conf but without any of Slurm's commands."""
    conf = site.folder / "slurm.conf"
    conf.write_text(CONF)
    monkeypatch.setenv("SLURM_CONF", str(conf))
    monkeypatch.setenv("PATH", str(site.folder))
    site.config.unlink()
    return site


def found(text: str) -> dict[str, Any]:
    return {each["name"]: each for each in json.loads(text)["findings"]}


def test_without_slurmctld_slurm_conf_is_checked_and_skipped_checks_are_named(bare: Site) -> None:
    result = bare.run("doctor")
    assert result.exit_code == 13
    assert "error  slurmctld\n" in result.stdout
    assert "JobRequeue=0" in result.stdout and "    JobRequeue=1\n" in result.stdout
    assert "instead of line 2:\n" in result.stdout
    assert "not checked: partitions, gpus" in result.stdout


def test_doctors_json_has_the_same_findings_and_the_lines(bare: Site) -> None:
    result = bare.run("doctor", "--json")
    assert result.exit_code == 13
    told = json.loads(result.stdout)
    assert told["worst"] == "error"
    assert told["findings"][0].keys() == {"name", "severity", "seen", "why", "write", "do"}
    line = {"file": str(bare.folder / "slurm.conf"), "line": "JobRequeue=1"}
    assert found(result.stdout)["job-requeue"]["write"] == [line | {"place": told_place(told)}]
    assert "partitions" in told["not_checked"]
    assert any("scontrol cannot be started" in why for why in told["not_seen"])


def told_place(told: dict[str, Any]) -> str:
    return next(str(w["place"]) for w in told["write"] if w["line"] == "JobRequeue=1")


def test_quiet_omits_notes_and_passed_checks(bare: Site) -> None:
    told = bare.run("doctor", "--quiet").stdout
    assert "warning  job-requeue" in told
    assert "\nnote" not in told and "\nok" not in told


def test_an_invalid_configuration_is_a_finding_and_the_other_checks_run(bare: Site) -> None:
    bare.config.write_text("[manage]\npartitons = []\n")
    result = bare.run("doctor", "--json")
    assert result.exit_code == 13
    config = found(result.stdout)["config"]
    assert config["severity"] == "error" and "manage.partitons is not a setting" in config["seen"]
    assert "kill-wait" in found(result.stdout)


def test_doctor_reports_that_it_saw_nothing(bare: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", str(bare.folder / "none.conf"))
    result = bare.run("doctor")
    assert result.exit_code == 13
    assert "none.conf: No such file or directory" in result.stdout


def test_control_characters_in_slurm_conf_do_not_reach_the_terminal(bare: Site) -> None:
    (bare.folder / "slurm.conf").write_text("PreemptType=\x1b[31mred\nKillWait=30\n")
    result = bare.run("doctor")
    assert "\x1b" not in result.stdout and "?[31mred" in result.stdout


@pytest.mark.parametrize("width", [20, 60, 80])
def test_no_prose_is_wider_than_the_screen(live_site: Site, width: int) -> None:
    conf = live_site.folder / "slurm.conf"
    conf.write_text(CONF)
    code, told = live_site.on_terminal(
        width, "doctor", SLURM_CONF=str(conf), PATH=str(live_site.folder), NO_COLOR="1"
    )
    assert code == 13
    copied = ("    ", "  do:")
    prose = [line for line in told.split("\n") if not line.startswith(copied)]
    words = [line for line in prose if cells(line) > width and " " in line.strip()]
    assert width < 60 or words == []


def test_colour_is_for_terminals_only(live_site: Site) -> None:
    conf = live_site.folder / "slurm.conf"
    conf.write_text(CONF)
    slurm = {"SLURM_CONF": str(conf), "PATH": str(live_site.folder)}
    assert "\x1b[" in live_site.on_terminal(80, "doctor", **slurm)[1]
    assert "\x1b[" not in live_site.spawn("doctor", **slurm).stdout


@pytest.mark.parametrize("release", RELEASES)
def test_exit_codes_distinguish_no_finding_from_a_warning(
    site: Site, monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    seen = sound(release)
    monkeypatch.setattr("slurm_tiresias.cli.doctor.look", lambda _: seen)
    result = site.run("doctor")
    assert result.exit_code == 0, result.stdout
    assert "Then:" not in result.stdout
    seen = with_settings(sound(release), KillWait="5 sec")
    result = site.run("doctor")
    assert result.exit_code == 12
    assert "Then: scontrol reconfigure" in result.stdout
    assert "Shadow mode needs none" not in result.stdout


def test_in_shadow_mode_no_warning_is_urgent(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(Config(), controller=replace(Config().controller, mode="shadow"))
    seen = replace(with_settings(sound(), KillWait="5 sec"), config=config)
    monkeypatch.setattr("slurm_tiresias.cli.doctor.look", lambda _: seen)
    assert "Shadow mode needs none of these changes." in site.run("doctor").stdout


def test_lines_of_slurm_conf_say_how_to_start(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = with_settings(sound(), AccountingStorageType="accounting_storage/none")
    monkeypatch.setattr("slurm_tiresias.cli.init.look", lambda _: seen)
    out = site.folder / "out"
    assert site.run("init", str(out), "--no-history").exit_code == 0
    text = (out / "slurm.conf.lines").read_text()
    before, line, _ = text.partition("\nAccountingStorageType=accounting_storage/slurmdbd\n")
    assert line and "# First: systemctl enable --now slurmdbd" in before


def test_the_list_of_checks_is_up_to_date() -> None:
    page = (ROOT / "docs" / "reference" / "doctor.md").read_text()
    assert checks() + "\n" == page, "run scripts/dev generate"


def test_init_needs_slurmctld_and_says_so(bare: Site) -> None:
    result = bare.run("init", str(bare.folder / "out"))
    assert result.exit_code == 5
    assert "The partitions cannot be seen" in error_of(result)
    assert not (bare.folder / "out").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("-p", "nowhere"), "Partition nowhere does not exist"),
        (("-p", "cpu"), "Partition cpu has no GPUs"),
        (("--state-dir", "here"), "is not a plain path"),
        (("--state-dir", "/x'; rm"), "is not a plain path"),
    ],
)
def test_init_refuses_invalid_arguments(
    site: Site, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], words: str
) -> None:
    seen = sound()
    partitions = (*(seen.partitions or ()), partition("cpu", nodes=frozenset({"c1"})))
    monkeypatch.setattr(
        "slurm_tiresias.cli.init.look", lambda _: replace(seen, partitions=partitions)
    )
    out = site.folder / "out"
    result = site.run("init", str(out), "--no-history", *options)
    assert result.exit_code == 2
    assert words in error_of(result)
    assert not out.exists()


@pytest.mark.parametrize("program", ["/usr/bin/tiresias-slurm", "/opt/bin/tiresias-slurm"])
def test_init_leaves_out_steps_for_what_the_packages_installed(
    site: Site, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr("slurm_tiresias.cli.init.look", lambda _: sound())
    monkeypatch.setattr("slurm_tiresias.cli.init._program", lambda: program)
    told = site.run("init", str(site.folder / "out"), "--no-history").stdout
    packaged = program.startswith("/usr/bin")
    assert ("apt-get purge" in told) is packaged
    assert ("/etc/systemd/system" in told) is ("daemon-reload" in told) is not packaged
    assert ("slurm-tiresias-spank_*.deb" in told) is packaged
    assert ("make -C spank" in told) is ("rm -r /etc/slurm-tiresias" in told) is not packaged


def test_with_packages_and_another_folder_for_the_state_both_are_undone(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurm_tiresias.cli.init.look", lambda _: sound())
    monkeypatch.setattr("slurm_tiresias.cli.init._program", lambda: "/usr/bin/tiresias-slurm")
    out = str(site.folder / "out")
    told = site.run("init", out, "--no-history", "--state-dir", "/srv/tiresias").stdout
    undo = told.partition("Undo it")[2]
    assert "rm /etc/systemd/system/tiresias-slurm.service" in undo
    assert "apt-get purge slurm-tiresias-controller slurm-tiresias" in undo
    assert "make -C spank" not in told


def test_init_overwrites_nothing_without_force(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slurm_tiresias.cli.init.look", lambda _: sound())
    out = site.folder / "out"
    assert site.run("init", str(out), "--no-history").exit_code == 0
    mine = out / "tiresias.toml"
    mine.write_text("mine")
    refused = site.run("init", str(out), "--no-history")
    assert refused.exit_code == 2 and "--force" in error_of(refused)
    assert mine.read_text() == "mine"
    assert site.run("init", str(out), "--no-history", "--force").exit_code == 0
    assert "mine" not in mine.read_text()


def test_the_files_are_for_this_cluster(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "slurm_tiresias.cli.init.look", lambda _: with_settings(sound(), KillWait="5 sec")
    )
    out = site.folder / "out"
    result = site.run("init", str(out), "--no-history", "--state-dir", "/srv/tiresias", "--json")
    told = json.loads(result.stdout)
    assert told["nodes"] == [{"nodes": 1, "gpus": 4, "type": "a100"}]
    assert {str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()} == set(told["files"])
    text = {name: (out / name).read_text() for name in told["files"]}
    assert 'state_dir = "/srv/tiresias"' in text["tiresias.toml"]
    assert "# gpu: 4 GPUs (1 x 4 a100)." in text["tiresias.toml"]
    assert "\nKillWait=30\n" in text["slurm.conf.lines"]
    assert "ReadWritePaths=/srv/tiresias\n" in text["tiresias-slurm.service"]
    assert "\nStateDirectory=" not in text["tiresias-slurm.service"]
    assert "\nUser=slurm\n" in text["tiresias-slurm.service"]
    nudge_file = Config().controller.nudge_file
    assert f"TIRESIAS_NUDGE_FILE:-{nudge_file}}}" in text["nudge"]
    assert f'nudge_file = "{nudge_file}"' in text["job_submit.lua"]
    assert 'type = "a100"' in text["cluster.toml"]
    assert "install -d -o slurm -g slurm -m 755 /srv/tiresias" in text["STEPS"]
    assert all(command in text["STEPS"] for step in told["steps"] for command in step["commands"])
    assert (out / "nudge").stat().st_mode & 0o777 == 0o755


def init_with_history(
    site: Site, monkeypatch: pytest.MonkeyPatch, jobs: Workload, better: float
) -> tuple[dict[str, Any], str]:
    """Return the output and files of init if the second candidate takes ``better`` times as
    long."""

    def simulated(_: object, cells: Sequence[Cell], told: Callable[[int], None]) -> list[Measured]:
        told(len(cells))
        default = as_the_default()
        return [
            measured(cell, [each * (better if number == 1 else 1.0) for each in default])
            for number, cell in enumerate(cells)
        ]

    monkeypatch.setattr("slurm_tiresias.cli.init.look", lambda _: sound())
    monkeypatch.setattr("slurm_tiresias.cli.init.from_sacct", lambda _: jobs)
    monkeypatch.setattr("slurm_tiresias.simulator.sweep.run_here", simulated)
    result = site.run("init", str(site.folder / "out"), "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout), (site.folder / "out" / "tiresias.toml").read_text()


def test_thresholds_that_the_history_shows_to_be_better_are_written_with_the_reason(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, text = init_with_history(site, monkeypatch, history(), better=0.8)
    chosen = tuple(told["thresholds_gpu_s"])
    assert chosen != DEFAULT_GPU_S
    assert load(site.folder / "out" / "tiresias.toml").policy.thresholds_gpu_s == chosen
    assert "-20.0%" in told["thresholds_because"]
    assert "# Chosen by 1,000 jobs since now-90days" in text


@pytest.mark.parametrize(
    ("jobs", "better", "because"),
    [
        (history(), 1.0, "show none that are surely better"),
        (history(days=3.0), 0.8, "3.0 days of history do not show how weeks differ"),
        (history(jobs=40), 0.8, "40 jobs since now-90days say too little, 600 are needed"),
    ],
)
def test_the_default_thresholds_stay_with_the_reason_in_the_file(
    site: Site, monkeypatch: pytest.MonkeyPatch, jobs: Workload, better: float, because: str
) -> None:
    told, text = init_with_history(site, monkeypatch, jobs, better)
    assert tuple(told["thresholds_gpu_s"]) == DEFAULT_GPU_S
    assert because in told["thresholds_because"]
    assert "\nthresholds_gpu_s" not in text and "# The thresholds stay at the default" in text
