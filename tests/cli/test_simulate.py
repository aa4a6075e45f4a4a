"""The command ``simulate``: its options, its results and its errors."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from slurm_tiresias import __version__
from slurm_tiresias.cli.simulate import simulate
from slurm_tiresias.cli.simulate_options import NAMES
from slurm_tiresias.simulator import files, history, run
from slurm_tiresias.simulator.baselines import SITES_RUN
from slurm_tiresias.simulator.sim_cluster import PLACEMENTS
from slurm_tiresias.simulator.traces import FORMATS
from slurm_tiresias.simulator.workload import TraceJob, Workload
from tests.cli.running import ROOT, Site, error_of, typed

HEADER = "job_id,submit_time_s,num_gpus,duration_s,model\n"
ROWS = (
    "long,0,8,4000,vgg19\n"
    "short,600,4,100,resnet50\n"
    "wide,700,8,300,\n"
    "huge,800,64,10,\n"
    "late,9000,2,900,alexnet\n"
)
KEYS = {
    *("policy", "jobs", "avg_jct_s", "median_jct_s", "p95_jct_s", "p99_jct_s", "makespan_s"),
    *("preemptions", "lower_bound_avg_jct_s", "avg_wait_s", "median_wait_s", "p95_wait_s"),
    *("promotions", "lost_gpu_s", "gpu_use", "bins", "workload", "cluster", "seed"),
    *("input_sha256", "version", "config", "dropped", "cannot_run_on_the_cluster"),
    *("reference", "over_reference", "avg_jct_over_lower_bound", "config_file"),
    "not_simulated",
}


@pytest.fixture
def trace(live_site: Site) -> Path:
    path = live_site.folder / "trace.csv"
    path.write_text(HEADER + ROWS)
    return path


def arguments(trace: Path, *more: str) -> tuple[str, ...]:
    return ("simulate", "--trace", str(trace), "--cluster", "2x4", *more)


def records(site: Site, *more: str) -> list[dict[str, Any]]:
    result = site.run(*more, "--json")
    assert result.exit_code == 0, result.stderr
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


# Results


def test_the_tables_name_every_policy_and_the_inputs(live_site: Site, trace: Path) -> None:
    result = live_site.run(*arguments(trace, "--preset", "paper", "--policy", "srtf,tiresias-l"))
    assert result.exit_code == 0
    assert f"version    slurm-tiresias {__version__}" in result.stdout
    assert "sha256     " in result.stdout
    assert "tiers      cut at 3200 GPU-s" in result.stdout
    assert "note       left out 1 job that cannot run here: too wide" in result.stdout
    assert result.stdout.count("\nsrtf ") == result.stdout.count("\ntiresias-l ") == 4


@pytest.mark.parametrize("width", [80, 120])
def test_with_all_policies_every_line_fits_the_terminal(live_site: Site, width: int) -> None:
    few = ("--workload", "philly-like:40", "--cluster", "2x8", "--policy", "all")
    code, output = live_site.on_terminal(width, "simulate", *few)
    assert code == 0
    shown = output[output.rindex("version ") :].splitlines()
    assert all(len(line) <= width + len("\x1b[1m\x1b[0m") for line in shown)
    tables = shown[shown.index("") :]
    assert sum(line.startswith(NAMES) for line in tables) == 4 * len(NAMES)
    assert "xBOUND" in output and "MAKESPAN" in output and "AGAIN" in output


def test_json_has_one_record_per_policy_with_all_inputs(live_site: Site, trace: Path) -> None:
    found = records(live_site, *arguments(trace, "--policy", "srsf", "--policy", "tiresias-l"))
    assert [record["policy"] for record in found] == ["srsf", "tiresias-l"]
    for record in found:
        assert record.keys() >= KEYS
        assert record["jobs"] == sum(each["jobs"] for each in record["bins"].values()) == 4
        assert 0 < record["lower_bound_avg_jct_s"] <= record["avg_jct_s"]
        assert record["cannot_run_on_the_cluster"] == 1
        assert record["seed"] is None


def test_the_table_has_a_line_for_each_job_under_each_policy(live_site: Site, trace: Path) -> None:
    target = live_site.folder / "jobs.csv"
    found = records(live_site, *arguments(trace, "--policy", "srtf,yarn-cs", "--csv", str(target)))
    with target.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for record in found:
        jct_s = [float(row["jct_s"]) for row in rows if row["policy"] == record["policy"]]
        assert sum(jct_s) / len(jct_s) == pytest.approx(record["avg_jct_s"])
        assert len(jct_s) == record["jobs"]


def test_the_same_input_gives_the_same_bytes_in_every_process(live_site: Site, trace: Path) -> None:
    def made(seed: str) -> list[bytes]:
        targets = [live_site.folder / f"{seed}.{ending}" for ending in ("csv", "html")]
        options = (
            "--csv",
            str(targets[0]),
            "--html",
            str(targets[1]),
            "--policy",
            "srtf,tiresias-l",
        )
        text = live_site.spawn(*arguments(trace, *options), PYTHONHASHSEED=seed)
        answer = live_site.spawn(*arguments(trace, "--json"), PYTHONHASHSEED=seed)
        assert (text.returncode, answer.returncode) == (0, 0), text.stderr + answer.stderr
        return [text.stdout.encode(), answer.stdout.encode(), *(t.read_bytes() for t in targets)]

    assert made("1") == made("2")


# Options


def test_a_setting_that_has_no_effect_is_named(live_site: Site, trace: Path) -> None:
    live_site.configure("[interactive]\ngpus_per_user = 0\n[preemption]\nmax_grace_s = 5\n")
    named = ("--config", str(live_site.config), "--set", "preemption.checkpoint=USR1@5")
    found = records(live_site, *arguments(trace, *named))[0]
    ignored = ["interactive.gpus_per_user", "preemption.checkpoint", "preemption.max_grace_s"]
    assert set(ignored) <= set(found["not_simulated"])
    shown = live_site.run(*arguments(trace, *named)).stdout
    assert all(name in shown for name in ignored)


def test_policies_are_listed_repeated_or_all_and_run_once(live_site: Site, trace: Path) -> None:
    words = ("--policy", "srtf, sf", "--policy", "sf")
    assert [r["policy"] for r in records(live_site, *arguments(trace, *words))] == ["srtf", "sf"]
    every = records(live_site, *arguments(trace, "--policy", "all"))
    assert [record["policy"] for record in every] == list(NAMES)


@pytest.mark.parametrize(
    ("more", "what"),
    [
        (("--workload", "foo"), "is not a workload"),
        (("--workload", ""), "is not a workload"),
        (("--workload", "paper480:x"), "is not a workload"),
        (("--workload", "philly-like:0"), "is not a workload"),
        (("--workload", "philly-like:2000000"), "is not a workload"),
        (("--workload", "paper480", "--trace", "{trace}"), "one source"),
        (("--workload", "paper480", "--from-sacct", "--since", "2026-01-01"), "one source"),
        (("--from-sacct",), "--since"),
        (("--workload", "paper480", "--account", "a"), "--from-sacct"),
        (("--since", "2026-01-01"), "--since"),
        (("--format", "csv"), "--trace"),
        (("--trace", "{trace}", "--format", "magic"), "'magic'"),
        (("--trace", "/nowhere.csv"), "cannot be read"),
        (("--cluster", "4"), "'4'"),
        (("--cluster", "0x4"), "'0x4'"),
        (("--trace", "{trace}", "--cluster", "1x1"), "No job of trace.csv can run on 1x1"),
        (("--placement", "magic"), "'magic'"),
        (("--thresholds", "a"), "is not a list of numbers"),
        (("--thresholds", "9,5"), "ascend"),
        (("--thresholds", "nan"), "is not a list of numbers"),
        (("--thresholds", "0"), "policy.thresholds_gpu_s"),
        (("--set", "order=newest"), "names no setting"),
        (("--set", "policy.order"), "names no setting"),
        (("--set", "policy.order=latest"), "policy.order"),
        (("--set", "policy.odrer=newest"), "Perhaps 'order' was meant"),
        (("--set", "policy.promote_knob=-1"), "policy.promote_knob"),
        (("--overhead", "much"), "'much'"),
        (("--overhead", "-1"), "'-1'"),
        (("--interval", "nan"), "is not a valid duration"),
        (("--interval", "inf"), "is not a valid duration"),
        (("--interval", "-1"), "-1"),
        (("--policy", "magic"), "is not a policy"),
        (("--policy", "tiresias"), "Perhaps tiresias-l was meant"),
        (("--policy", ""), "is not a policy"),
        (("--csv", "{folder}"), "is not a file"),
        (("--html", "{folder}/no/such"), "cannot be written"),
        (("--html", "/dev/null"), "is not a file"),
        (("--csv", "{folder}/x", "--html", "{folder}/x"), "the same file"),
        (("--trace", "{trace}", "--csv", "{trace}"), "replace the file it was made from"),
    ],
)
def test_impossible_options_are_a_one_line_error_before_any_work(
    live_site: Site, trace: Path, monkeypatch: pytest.MonkeyPatch, more: Sequence[str], what: str
) -> None:
    monkeypatch.setattr(run, "simulate", lambda *_: pytest.fail("worked before it complained"))
    before = sorted(live_site.folder.iterdir())
    words = [word.format(trace=trace, folder=live_site.folder) for word in more]
    result = live_site.run("simulate", *words)
    assert result.exit_code == 2
    assert what in error_of(result)
    assert result.stdout == ""
    assert sorted(live_site.folder.iterdir()) == before


# The configuration of a site

SITE_SETTINGS = """
interval_s = 7
[policy]
thresholds_gpu_s = [900, 5000]
order = "running-first"
promote_knob = 3
[preemption]
min_run_s = 250
[placement]
pack_limit = 0.7
"""


def test_a_site_simulates_its_own_settings_next_to_the_best(live_site: Site, trace: Path) -> None:
    live_site.configure(SITE_SETTINGS)
    stock, own = records(live_site, *arguments(trace, "--config", str(live_site.config)))
    assert (stock["policy"], own["policy"]) == ("best", "tiresias-l")
    assert own["config_file"] == str(live_site.config)
    config = own["config"]
    assert config["policy"]["thresholds_gpu_s"] == [900, 5000]
    assert config["policy"]["order"] == "running-first"
    assert config["policy"]["promote_knob"] == 3
    assert config["preemption"] == {"min_run_s": 250, "budget_share": 0.1}
    assert config["placement"] == {"pack_limit": 0.7}
    assert config["simulation"]["interval_s"] == 7


def test_options_take_precedence_over_the_configuration(live_site: Site, trace: Path) -> None:
    live_site.configure(SITE_SETTINGS)
    named = ("--config", str(live_site.config), "--policy", "tiresias-g", "--interval", "0")
    changes = ("policy.order=entry", "policy.promote_knob=0", "placement.pack_limit=0.2")
    options = [word for change in changes for word in ("--set", change)]
    (found,) = records(live_site, *arguments(trace, *named, "--thresholds", "60", *options))
    config = found["config"]
    assert (found["policy"], config["simulation"]["interval_s"]) == ("tiresias-g", 0)
    assert (config["policy"]["thresholds_gpu_s"], config["policy"]["order"]) == ([60], "entry")
    assert (config["policy"]["promote_knob"], config["placement"]["pack_limit"]) == (0, 0.2)
    assert config["preemption"]["min_run_s"] == 250


def test_other_policies_are_compared_to_the_configured_one(live_site: Site, trace: Path) -> None:
    live_site.configure('[policy]\nname = "2d-gittins"\n')
    found = records(live_site, *arguments(trace, "--config", str(live_site.config)))
    assert [record["policy"] for record in found] == ["best", "tiresias-g"]
    assert {record["reference"] for record in found} == {"tiresias-g"}


def test_the_configuration_may_be_named_before_the_command(live_site: Site, trace: Path) -> None:
    words = arguments(trace, "--policy", "tiresias-l")
    before = live_site.run("--config", str(live_site.config), *words).stdout
    after = live_site.run(*words, "--config", str(live_site.config)).stdout
    assert before == after
    assert f"\nconfig     {live_site.config}\n" in after
    assert "\nprotection none preempted within 120 s of a start, after preemptions" in after
    assert "\ndecisions  every 10 s\n" in after


def test_a_controller_on_the_same_host_changes_no_simulation(live_site: Site, trace: Path) -> None:
    live_site.configure(SITE_SETTINGS)
    shown = live_site.run(*arguments(trace), TIRESIAS_CONFIG=str(live_site.config)).stdout
    assert "\nconfig     none, the defaults\n" in shown
    assert "\ntiers      cut at 6 GPU-h, 24 GPU-h, 96 GPU-h, 384 GPU-h, 1,536 GPU-h" in shown


def test_the_defaults_are_compared_with_the_best_baseline(live_site: Site, trace: Path) -> None:
    empty = live_site.folder / "empty.toml"
    empty.write_text("")
    found = records(live_site, *arguments(trace))
    assert [record["policy"] for record in found] == ["best", "tiresias-l"]
    as_configured = records(live_site, *arguments(trace, "--config", str(empty)))
    assert found == [{**record, "config_file": None} for record in as_configured]


def test_the_preset_has_the_settings_of_the_paper(live_site: Site, trace: Path) -> None:
    words = arguments(trace, "--preset", "paper")
    found = records(live_site, *words)
    assert [each["policy"] for each in found] == ["yarn-cs", "srtf", "tiresias-g", "tiresias-l"]
    assert {each["preset"] for each in found} == {"paper"}
    assert found[0]["config"]["policy"]["thresholds_gpu_s"] == [3200]
    assert found[0]["config"]["simulation"]["interval_s"] == 0
    assert found[0]["config"]["preemption"]["min_run_s"] == 0
    shown = live_site.run(*words).stdout
    assert "\nconfig     the preset paper\n" in shown
    assert "\nprotection off\n" in shown
    (other,) = records(live_site, *words, "--policy", "sf", "--thresholds", "60")
    assert (other["policy"], other["config"]["policy"]["thresholds_gpu_s"]) == ("sf", [60])


def test_a_preset_and_a_configuration_contradict_each_other(live_site: Site, trace: Path) -> None:
    preset, config = ("--preset", "paper"), ("--config", str(live_site.config))
    for words in ((*preset, *config), (*config, *preset)):
        refused = live_site.run(*arguments(trace, *words))
        assert refused.exit_code == 2
        assert "contradict each other" in error_of(refused)


def test_stock_slurm_ignores_the_controllers_interval(live_site: Site, trace: Path) -> None:
    quick, slow = (
        {
            record["policy"]: record["avg_jct_s"]
            for record in records(
                live_site,
                *arguments(trace, "--interval", interval_s),
                *("--policy", "slurm,yarn-cs,best-effort,tiresias-l"),
            )
        }
        for interval_s in ("1", "2000")
    )
    assert quick.pop("tiresias-l") < slow.pop("tiresias-l")
    assert quick == slow
    shown = live_site.run(*arguments(trace, "--interval", "2000")).stdout
    assert "\nslurm      main scheduler at every event, backfill every 30 s\n" in shown


def test_protections_of_the_configuration_keep_a_job_running(live_site: Site) -> None:
    path = live_site.folder / "guarded.csv"
    path.write_text(f"{HEADER}long,0,8,4000,\nshort,1000,8,100,\n")
    words = arguments(path, "--policy", "tiresias-l", "--config", str(live_site.config))
    taken = {}
    for min_run_s in (0, 2000, 5000):
        live_site.configure(
            f"[policy]\nthresholds_gpu_s = [10800]\n[preemption]\nmin_run_s = {min_run_s}\n"
        )
        (found,) = records(live_site, *words, "--overhead", "none")
        taken[min_run_s] = (found["preemptions"], found["median_wait_s"])
    assert taken == {0: (1, 225), 2000: (1, 550), 5000: (0, 1500)}


def test_a_report_never_replaces_the_configuration(live_site: Site, trace: Path) -> None:
    file = str(live_site.config)
    result = live_site.run(*arguments(trace, "--config", file, "--html", file))
    assert result.exit_code == 2
    assert "replace the file it was made from" in error_of(result)


# Types of GPUs


def test_every_output_says_where_jobs_with_missing_gpu_types_run(live_site: Site) -> None:
    one = ("simulate", *typed(live_site.folder, strict=False), "--policy", "sf")
    page = live_site.folder / "page.html"
    shown = live_site.run(*one, "--html", str(page)).stdout
    said = "2 jobs name GPUs that no node has ('h100'): they run on any"
    assert f"note       {said}\n" in shown
    assert "they run on any" in page.read_text()
    (record,) = records(live_site, *one)
    assert record["notes"] == [said]
    assert (record["jobs"], record["cannot_run_on_the_cluster"]) == (4, 0)


def test_with_strict_types_jobs_of_missing_types_are_left_out_and_reported(live_site: Site) -> None:
    one = ("simulate", *typed(live_site.folder, strict=True), "--policy", "sf")
    shown = live_site.run(*one).stdout
    assert "note       2 jobs name GPUs that no node has ('h100'): they cannot run\n" in shown
    assert "left out 2 jobs that cannot run here: too wide, or bound to other GPUs\n" in shown
    (record,) = records(live_site, *one)
    assert (record["jobs"], record["cannot_run_on_the_cluster"]) == (2, 2)


# Invalid traces


def test_a_bad_trace_is_one_line_with_file_and_line_and_no_report(live_site: Site) -> None:
    bad = live_site.folder / "bad.csv"
    bad.write_text(f"{HEADER}a,0,1,5,\nb,0,1,-5,\n")
    before = sorted(live_site.folder.iterdir())
    targets = ("--csv", str(live_site.folder / "x.csv"), "--html", str(live_site.folder / "x.html"))
    result = live_site.run(*arguments(bad, *targets))
    assert result.exit_code == 2
    assert f"{bad}, line 3: the duration is negative" in error_of(result)
    assert result.stdout == ""
    assert sorted(live_site.folder.iterdir()) == before


# Files


def test_an_interrupted_simulation_leaves_no_files(
    live_site: Site, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    old = live_site.folder / "old.html"
    old.write_text("before")
    before = sorted(live_site.folder.iterdir())
    monkeypatch.setattr(run, "simulate", interrupted)
    new = str(live_site.folder / "new.csv")
    result = live_site.run(*arguments(trace, "--html", str(old), "--csv", new))
    assert result.exit_code == 130
    assert old.read_text() == "before"
    assert sorted(live_site.folder.iterdir()) == before


def test_results_are_shown_even_if_a_file_cannot_be_written(
    live_site: Site, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Path, __: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "_fill", full)
    target = live_site.folder / "jobs.csv"
    result = live_site.run(*arguments(trace, "--policy", "sf", "--csv", str(target)))
    assert result.exit_code == 1
    assert "No space left on device" in error_of(result)
    assert "xBOUND" in result.stdout
    assert not target.exists()


WITHOUT_EXTRA = (
    "import sys; sys.modules.update(dict.fromkeys(('pandas', 'matplotlib', 'jinja2')));"
    "from slurm_tiresias.cli.main import main; main()"
)


@pytest.mark.parametrize("option", ["--csv", "--html"])
def test_without_the_extra_a_file_is_refused(live_site: Site, trace: Path, option: str) -> None:
    target = live_site.folder / "x"
    words = arguments(trace, option, str(target))
    result = live_site.spawn(*words, command=(sys.executable, "-c", WITHOUT_EXTRA))
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert "pip install 'slurm-tiresias[report]'" in result.stderr
    assert not target.exists()


def test_without_the_extra_everything_else_works(live_site: Site, trace: Path) -> None:
    for more in ((), ("--json",)):
        words = arguments(trace, "--policy", "sf", *more)
        result = live_site.spawn(*words, command=(sys.executable, "-c", WITHOUT_EXTRA))
        assert (result.returncode, result.stderr) == (0, "")


def test_the_own_history_can_be_simulated(live_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def from_sacct(since: str, **chosen: str) -> Workload:
        asked.append((since, chosen))
        return own

    own = Workload("sacct", (TraceJob("12_3", 0.0, 2, 60.0),), format="sacct", sha256="ab" * 32)
    monkeypatch.setattr(history, "from_sacct", from_sacct)
    one = ("simulate", "--from-sacct", "--since", "2026-01-31", "--policy", "sf")
    (record,) = records(live_site, *one, "--until", "now-1day", "--partition", "gpu,a100")
    chosen = {"until": "now-1day", "partition": "gpu,a100", "account": ""}
    assert asked == [("2026-01-31", chosen)]
    assert (record["workload"], record["format"], record["jobs"]) == ("sacct", "sacct", 1)


def test_the_manual_names_all_options_policies_and_figures(live_site: Site, trace: Path) -> None:
    manual = (ROOT / "docs" / "how-to" / "simulate.md").read_text()
    named = {word for code in re.findall("`([^`\n]+)`", manual) for word in re.split("[ =]", code)}
    options = {option for each in simulate.params for option in each.opts}
    (record,) = records(live_site, *arguments(trace, "--policy", "sf"))
    figures = {name for name in record if name.endswith("_s")} | {"gpu_use", "bins", "unfinished"}
    figures |= {"reference", "over_reference", "avg_jct_over_lower_bound"}
    assert {*options, *NAMES, *PLACEMENTS, *FORMATS, *figures} <= named


def test_the_best_baseline_is_named_and_each_is_simulated_once(
    live_site: Site, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated = []
    simulate_one = run.simulate

    def counted(workload: Workload, policy: str, *rest: Any) -> Any:
        simulated.append(policy)
        return simulate_one(workload, policy, *rest)

    monkeypatch.setattr(run, "simulate", counted)
    slurm, best, _ = records(live_site, *arguments(trace, "--policy", "slurm,best,tiresias-l"))
    assert sorted(simulated) == sorted({*SITES_RUN, "tiresias-l"})
    assert best["best_of"].keys() == {*SITES_RUN}
    assert best["best_of"]["slurm"] == slurm["avg_jct_s"]
    assert best["avg_jct_s"] == best["best_of"][best["baseline"]] == min(best["best_of"].values())
    assert (slurm["baseline"], slurm["best_of"]) == (None, None)
    shown = live_site.run(*arguments(trace, "--who-pays", "gpus")).stdout
    assert f"\nbest: {best['baseline']} " in shown
    assert f"\nbest       {best['baseline']}, by the average JCT of slurm " in shown
    assert f"and under best: {best['baseline']} (S)" in " ".join(shown.split())


def test_limits_of_users_are_not_drawn_where_jobs_have_limits(live_site: Site, trace: Path) -> None:
    best, _ = records(live_site, *arguments(trace, "--limits", "users"))
    assert best["best_of"].keys() == {*SITES_RUN} - {"slurm-users"}


def test_some_jobs_lose_work_and_none_says_when_it_saves_unless_told_otherwise(
    live_site: Site, trace: Path
) -> None:
    shown = " ".join(live_site.run(*arguments(trace)).stdout.split())
    assert (
        "saves 40 % save when asked to, 40 % save every 30 minutes, 20 % never save; none says when"
        in shown
    )
    (found,) = records(live_site, *arguments(trace, "--policy", "tiresias-l", "--saves", "none"))
    assert found["config"]["simulation"]["saves"] is None
    assert found["again_gpu_s"] == 0.0
    shown = " ".join(live_site.run(*arguments(trace, "--saves", "none")).stdout.split())
    assert "saves all save when asked to, so that preemption loses no work" in shown


def test_several_seeds_are_summarized_by_median_and_range(live_site: Site) -> None:
    jobs = ("simulate", "--workload", "philly-like:40:7", "--cluster", "2x8", "--seeds", "3")
    found: Any = records(live_site, *jobs)
    seeds = found["seeds"]
    assert [[record["seed"] for record in each] for each in seeds] == [[7, 7], [8, 8], [9, 9]]
    (alone, _) = records(live_site, *jobs[:-2])
    assert seeds[0][0]["avg_jct_s"] == alone["avg_jct_s"]
    ratios = sorted(best["over_reference"]["avg_jct"] for best, _ in seeds)
    spread = found["over_reference"]["best"]["avg_jct"]
    assert [spread["least"], spread["median"], spread["most"]] == ratios
    assert "SEED" not in live_site.run(*jobs, "--policy", "tiresias-l").stdout
    shown = live_site.run(*jobs).stdout
    row = f"{ratios[1]:.2f} ({ratios[0]:.2f}-{ratios[2]:.2f})"
    assert re.search(rf"^best +{re.escape(row)} ", shown, re.MULTILINE)
    for best, _ in seeds:
        assert re.search(
            rf"^{re.escape(best['workload'])} +{best['baseline']} ", shown, re.MULTILINE
        )


def test_seeds_draw_saves_limits_and_reports_of_a_trace_anew(live_site: Site, trace: Path) -> None:
    trace.write_text(HEADER + "".join(f"{i},{i},{1 + i % 8},{4000 - 90 * i},\n" for i in range(30)))
    more = ("--policy", "slurm-users,tiresias-l", "--reports", "50", "--seeds", "2")
    found: Any = records(live_site, *arguments(trace, *more))
    (users, ours), (users_again, ours_again) = found["seeds"]
    assert users["avg_jct_s"] != users_again["avg_jct_s"]
    assert ours["again_gpu_s"] != ours_again["again_gpu_s"]
    assert users["input_sha256"] == users_again["input_sha256"]


@pytest.mark.parametrize("more", [("--csv", "x.csv"), ("--html", "x.html"), ("--who-pays", "gpus")])
def test_what_shows_single_jobs_is_refused_with_several_seeds(
    live_site: Site, trace: Path, more: tuple[str, str]
) -> None:
    option, value = more
    value = str(live_site.folder / value) if "." in value else value
    result = live_site.run(*arguments(trace, "--seeds", "2", option, value))
    assert "show one seed" in error_of(result)


def test_jobs_that_report_are_simulated_and_named(live_site: Site, trace: Path) -> None:
    (found,) = records(
        live_site, *arguments(trace, "--policy", "tiresias-l", "--reports", "50:0.5:25")
    )
    reports = {"share": 0.5, "sigma": 0.5, "liars": 0.25}
    assert found["config"]["simulation"]["reports"] == reports
    result = live_site.run(*arguments(trace, "--reports", "50:0.5:25", "--limits", "10x"))
    shown = " ".join(result.stdout.split())
    assert "reports 50 % of the jobs, each time off by e^0.5, and 25 % lie" in shown
    assert "note time limits are drawn: 1 to 10 times what it needs" in shown


def test_saves_are_simulated_and_repeated_work_is_shown(live_site: Site, trace: Path) -> None:
    saves = "asked=40,30=40,never=20@50"
    (found,) = records(live_site, *arguments(trace, "--policy", "tiresias-l", "--saves", saves))
    assert found["config"]["simulation"]["saves"] == {
        "shares": [
            {"every_s": 0.0, "share": 0.4},
            {"every_s": 1800.0, "share": 0.4},
            {"every_s": None, "share": 0.2},
        ],
        "told": 0.5,
    }
    assert found["again_share"] >= 0
    shown = live_site.run(*arguments(trace, "--saves", saves)).stdout
    assert (
        "AGAIN" in shown
        and "40 % save every 30 minutes, 20 % never save; 50 % do not" in " ".join(shown.split())
    )


@pytest.mark.parametrize(
    "saves", ["30", "asked=50", "asked=50,30=60", "30=100@101", "0=100", "x=100", "30=100@", ""]
)
def test_an_invalid_saves_option_is_one_line(live_site: Site, trace: Path, saves: str) -> None:
    result = live_site.run(*arguments(trace, f"--saves={saves}"))
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1 and "WHEN=PERCENT" in result.stderr


@pytest.mark.parametrize("reports", ["101", "half", "50:6", "60::50", "-1", "50:0.5:25:1", ""])
def test_an_invalid_reports_option_is_one_line(live_site: Site, trace: Path, reports: str) -> None:
    result = live_site.run(*arguments(trace, f"--reports={reports}"))
    assert "is not a valid share of jobs. Write SHARE" in error_of(result)
