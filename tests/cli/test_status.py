"""The output of ``status``, its visibility, and its exit codes."""

from __future__ import annotations

import json
import os
import pwd
import re
import time
from dataclasses import replace

import pytest

from slurm_tiresias.cli.columns import COLUMNS, chosen, sorted_by
from slurm_tiresias.cli.screen import Screen
from slurm_tiresias.cli.status import Selection, View, cut, header_lines, tier_lines
from slurm_tiresias.model import EventRecord
from slurm_tiresias.status import published
from slurm_tiresias.status.published import (
    PublishedGpus,
    PublishedStandby,
    PublishedState,
    PublishedTier,
)
from slurm_tiresias.text import as_ascii, cells
from tests.cli.running import Site, error_of
from tests.cli.states import (
    NOW_S,
    busy_state,
    empty_state,
    not_acting,
    progress,
    running,
    state,
    unmanaged,
    waiting,
)

ESCAPE = "\x1b"


def shown(site: Site, *arguments: str) -> list[str]:
    """The job ids that ``status`` shows with these arguments."""
    result = site.run("status", "-n", "-o", "jobid", *arguments)
    assert result.exit_code == 0, result.output
    return [line.strip() for line in result.stdout.splitlines()]


def screen_of(width: int, **changes: bool) -> Screen:
    return replace(Screen(width=width), **changes)


def drawn(published_state: published.PublishedState, screen: Screen) -> list[str]:
    view = View(Selection(), chosen(()))
    return list(view.lines(published_state, screen, NOW_S))


def test_the_header_shows_mode_policy_and_age_of_the_last_cycle(site: Site) -> None:
    site.publish(busy_state())
    first = site.run("status").stdout.splitlines()[0]
    assert first.startswith("hopper  Slurm 24.05.4 by commands  2d-las, order first-start")
    assert first.endswith("enforce  cycle 4821, 4s ago")


def test_the_header_says_why_slurm_is_not_reached_through_pyslurm(site: Site) -> None:
    because = "pyslurm 25.11.2 was built for Slurm 25.11, and here is 26.05"
    site.publish(replace(busy_state(), driver_because=because))
    lines = site.run("status").stdout.splitlines()
    assert lines[1] == f"Not through pyslurm: {because}."
    assert json.loads(site.run("status", "--json").stdout)["driver_because"] == because
    site.publish(replace(busy_state(), driver="pyslurm 25.11.2"))
    lines = site.run("status").stdout.splitlines()
    assert "Slurm 24.05.4 by pyslurm 25.11.2" in lines[0]
    assert "pyslurm" not in lines[1]


def test_the_bar_shows_gpus_by_tier() -> None:
    bar = list(header_lines(busy_state(), Screen(), NOW_S))[1]
    assert bar.endswith("█ 180 managed  ▓ 40 others  ░ 28 idle  x 8 down")
    assert len(re.findall("[█▓░x]", bar)) == 40 + 4


def bars(published_state: PublishedState, width: int = 80) -> list[tuple[int, int]]:
    """Return the lengths of the bars of each tier: of running and of waiting jobs."""
    rows = list(tier_lines(published_state, screen_of(width)))[1:]
    return [(row.count("█"), row.count("▒")) for row in rows]


def with_tiers(*gpus: tuple[int, int], total: int) -> PublishedState:
    """Tiers with these numbers of GPUs, running and requested."""
    tiers = [PublishedTier(i, 0.0, 1.0, run, run, wait, wait) for i, (run, wait) in enumerate(gpus)]
    return state(tiers=tuple(tiers), gpus=PublishedGpus(total, total, 0, 0, 0))


def test_each_symbol_has_one_meaning_in_the_output() -> None:
    head = "".join(header_lines(busy_state(), screen_of(80), NOW_S))
    tiers = "".join(tier_lines(busy_state(), screen_of(80)))
    assert "█" in head and "█" in tiers, "GPUs of managed jobs"
    assert "▓" in head and "▓" not in tiers, "GPUs of others"
    assert "▒" not in head and "▒" in tiers, "GPUs that are asked for"
    assert len({as_ascii(sign) for sign in "█▓▒░"}) == 4


def test_a_full_cluster_is_a_full_bar_however_long_the_queue() -> None:
    ((running_cells, waiting_cells),) = bars(with_tiers((64, 6400), total=64))
    assert running_cells == waiting_cells >= 10
    first, second = bars(with_tiers((16, 0), (16, 16), total=64))
    assert first[0] == second[0] == second[1] == pytest.approx(running_cells / 4, abs=1)


def test_bars_of_a_cluster_without_gpus_are_empty() -> None:
    assert bars(with_tiers((0, 0), total=0)) == [(0, 0)]


def test_thresholds_are_readable(site: Site) -> None:
    site.publish(empty_state())
    output = site.run("status").stdout
    assert "below 3200 GPU-s" in output
    site.publish(busy_state())
    output = site.run("status").stdout
    assert "below 1 GPU-h" in output and "1 to 5 GPU-h" in output and "from 5 GPU-h" in output


def test_jobs_are_listed_in_order_with_right_aligned_ids(site: Site) -> None:
    site.publish(state(waiting("9", rank=1), waiting("1234_5", rank=0), waiting("77", rank=2)))
    rows = site.run("status", "-n").stdout.splitlines()
    assert [row[:6] for row in rows] == ["1234_5", "     9", "    77"]


def test_a_preempted_job_shows_its_preemptor(site: Site) -> None:
    site.publish(busy_state())
    output = site.run("status", "-n", "-o", "jobid,preempt,reason", "-j", "40655").stdout
    assert output.split(maxsplit=1) == ["40655", "2 by 40601  preempted for 40731\n"]


def test_a_protected_job_shows_its_protection(site: Site) -> None:
    site.publish(busy_state())
    output = site.run("status", "-n", "-o", "reason", "-j", "40729").stdout
    assert output == "protected: 40718_3 +1, minimum run time\n"


def test_slurms_reason_is_shown_if_slurm_makes_a_job_wait(site: Site) -> None:
    site.publish(state(waiting("1", reason="slurm-waits", slurm_reason="Dependency")))
    assert site.run("status", "-n", "-o", "reason").stdout == "Slurm waits: Dependency\n"


REASONS_IN_SHADOW = {
    "40712": "runs",
    "40718_3": "runs",
    "40731": "Priority; would start now; would preempt 40655",
    "40729": "Priority; would wait: protected",
    "40655": "running; would be preempted for 40731",
    "40600": "runs",
    "39911": "Priority; would wait: no room",
    "40735": "Priority; would wait: never fits",
    "40500": "not managed",
}


@pytest.mark.parametrize("mode", ["shadow", "paused"])
def test_without_acting_both_kinds_of_action_are_shown_apart(site: Site, mode: str) -> None:
    site.publish(not_acting(busy_state(), mode))
    output = site.run("status", "-n", "-a", "-o", "jobid,reason").stdout
    rows = (line.split(maxsplit=1) for line in output.splitlines())
    assert {job_id: reason.strip() for job_id, reason in rows} == REASONS_IN_SHADOW
    assert "Slurm schedules" in site.run("status").stdout


def test_both_actions_are_visible_on_80_columns() -> None:
    lines = drawn(not_acting(busy_state()), screen_of(80))
    assert lines[2:4] == [
        "The controller runs in shadow mode: it decides and does nothing; Slurm",
        "schedules.",
    ]
    rows = {line.split()[0]: line for line in lines if line}
    assert rows["40655"].endswith(" gpu02; would be preempted for 40731")
    assert rows["40729"].endswith(" Priority; would wait: protected")
    assert rows["40712"].endswith(" gpu01")
    assert "Priority; would start now; would preempt" in rows["40731"]


def test_only_the_first_of_many_victims_are_named() -> None:
    victims = tuple(map(str, range(1, 13)))
    state_ = not_acting(state(waiting("20", reason="starts-preempting", victims=victims)))
    assert state_.jobs[0].would == (
        "would start now; would preempt 1, 2, 3, 4, 5, 6, 7, 8 and 4 more"
    )


def test_unmanaged_jobs_are_hidden_but_counted(site: Site) -> None:
    site.publish(busy_state())
    assert "40500" not in site.run("status", "-n").stdout
    assert "8 jobs; 1 not managed and not shown (-a shows all)." in site.run("status").stdout
    assert "40500" in site.run("status", "--all").stdout


def test_an_unmanaged_job_asked_for_by_id_is_shown(site: Site) -> None:
    site.publish(busy_state())
    assert shown(site, "-j", "40500") == ["40500"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("-u", "wei"), ["40600", "39911"]),
        (("--user", "wei,bob"), ["40600", "39911", "40735"]),
        (("-j", "40718"), ["40718_3"]),
        (("-j", "40718_3,40735"), ["40718_3", "40735"]),
        (("-j", "40735", "-u", "wei"), []),
        (("-p", "cpu"), []),
        (("-p", "cpu,gpu", "-u", "bob"), ["40735"]),
        (("-t", "r", "-u", "wei"), ["40600"]),
        (("-t", "PENDING", "-u", "wei"), ["39911"]),
        (("--tier", "1"), ["40655", "40600"]),
        (("--tier", "02,1"), ["40655", "40600", "39911"]),
    ],
)
def test_filters_follow_slurms_conventions(
    site: Site, arguments: tuple[str, ...], expected: list[str]
) -> None:
    site.publish(busy_state())
    assert shown(site, *arguments) == expected


def test_a_job_of_several_partitions_is_found_by_each(site: Site) -> None:
    site.publish(state(waiting("5", partition="a100,h100")))
    assert shown(site, "-p", "h100") == ["5"]


def test_me_selects_the_jobs_of_the_calling_user(site: Site) -> None:
    me = pwd.getpwuid(os.getuid()).pw_name
    site.publish(state(waiting("5", user=me), waiting("6", user=f"not{me}")))
    assert shown(site, "--me") == ["5"]


def test_columns_are_chosen_and_added(site: Site) -> None:
    site.publish(busy_state())
    titles = [
        site.run("status", "-o", wanted).stdout.splitlines()[8].split()
        for wanted in ("jobid,Partition", "+partition,rank")
    ]
    assert titles[0] == ["JOBID", "PARTITION"]
    assert titles[1][-3:] == ["REASON", "PARTITION", "RANK"]


def test_the_format_comes_from_the_environment_too(site: Site) -> None:
    site.publish(busy_state())
    output = site.run("status", "-n", "-u", "bob", TIRESIAS_STATUS_FORMAT="tier,jobid").stdout
    assert output.split() == ["0", "40735"]


@pytest.mark.parametrize("name", COLUMNS)
def test_every_column_can_be_shown_of_every_job(site: Site, name: str) -> None:
    site.publish(busy_state())
    result = site.run("status", "-n", "-a", "-o", name)
    assert len(result.stdout.splitlines()) == 9


def test_an_empty_cluster_is_shown_without_tables(site: Site) -> None:
    site.publish(empty_state())
    result = site.run("status")
    assert result.exit_code == 0
    assert result.stdout.endswith("\n\nNo jobs.\n")
    assert "No GPUs in the managed partitions." in result.stdout


def test_a_stale_state_is_shown_with_a_warning(site: Site) -> None:
    site.publish(busy_state(at_s=NOW_S - 36))
    result = site.run("status")
    assert result.exit_code == 3
    assert "STALE: cycle 4821, 36s ago" in result.stdout and "40712" in result.stdout
    assert "has published nothing for 36s" in error_of(result)


def test_a_stopped_controller_is_distinguished_from_a_stale_one(site: Site) -> None:
    site.publish(busy_state(mode="stopped", at_s=NOW_S - 600))
    result = site.run("status")
    assert result.exit_code == 3
    assert "  stopped  cycle 4821, 10m00s ago" in result.stdout and "40712" in result.stdout
    assert error_of(result) == (
        "The controller was stopped; its last cycle was 10m00s ago. "
        "Start it with: systemctl start tiresias-slurm, or without systemd: "
        "tiresias-slurm controller."
    )


def test_unmanaged_jobs_show_no_service_and_no_waiting_time(site: Site) -> None:
    site.publish(state(unmanaged("1"), unmanaged("2", state="pending")))
    output = site.run("status", "-a", "-n", "-o", "jobid,attained,waited").stdout
    assert [row.split() for row in output.splitlines()] == [["1", "-", "-"], ["2", "-", "-"]]


def test_a_state_slightly_older_than_three_intervals_is_not_stale(site: Site) -> None:
    site.publish(busy_state(at_s=NOW_S - 35))
    assert site.run("status").exit_code == 0


def test_failed_cycles_are_shown_with_their_cause(site: Site) -> None:
    site.publish(busy_state(at_s=NOW_S - 600, failures=58, error="Unable to contact slurmctld"))
    result = site.run("status")
    assert result.exit_code == 3
    assert "58 cycles failed since: Unable to contact slurmctld" in result.stdout
    assert "no good cycle for 10m00s, and the state shown is that old: Unable" in error_of(result)


def test_the_next_try_and_problems_of_good_cycles_are_shown(site: Site) -> None:
    site.publish(busy_state(failures=2, error="No answer", next_try_s=NOW_S + 30))
    assert "2 cycles failed since, next try in 30s: No answer" in site.run("status").stdout
    site.publish(busy_state(warning="manage.partitions names gpuu"))
    assert "manage.partitions names gpuu" in site.run("status").stdout


def test_status_shows_the_active_and_the_standby_controller(site: Site) -> None:
    assert "acts (term" not in site.run("status").stdout
    site.publish(busy_state(host="ctl1", term=3))
    assert "ctl1 acts (term 3); no standby." in site.run("status").stdout
    standby = PublishedStandby("ctl2", 7, wanted=False)
    site.publish(busy_state(host="ctl1", term=3, standbys=(standby,)))
    assert "ctl1 acts (term 3); ctl2 stands by." in site.run("status").stdout


def test_a_pause_is_shown_with_its_time_and_user(site: Site) -> None:
    paused = EventRecord(NOW_S - 600, "paused", "", "", "by root (uid 0)")
    site.publish(busy_state(mode="paused", events=(paused,)))
    said = "until tiresias-slurm resume, Slurm schedules by itself."
    who = "Paused by root (uid 0), Nov 14 22:03:20."
    assert f"{said} {who}" in " ".join(site.run("status").stdout.split())
    site.publish(busy_state(mode="enforce", events=(paused,)))
    assert "aused by" not in site.run("status").stdout
    site.publish(busy_state(mode="paused", events=()))
    output = " ".join(site.run("status").stdout.split())
    assert said in output and "Paused by" not in output


def test_json_round_trips_to_the_published_state(site: Site) -> None:
    standby = PublishedStandby("ctl2", 7, wanted=False)
    everything = busy_state(standbys=(standby,), failed_cycles={"slurm-answer": 2})
    site.publish(everything)
    output = site.run("status", "--json", "--all").stdout
    (site.folder / published.FILE_NAME).write_text(output)
    assert published.read(site.folder) == everything


def test_json_has_the_selected_jobs_and_everything_else(site: Site) -> None:
    site.publish(busy_state())
    answer = json.loads(site.run("status", "--json", "-u", "wei").stdout)
    assert [job["job_id"] for job in answer["jobs"]] == ["40600", "39911"]
    assert answer["gpus"]["total"] == 256 and len(answer["tiers"]) == 3


@pytest.mark.parametrize("width", [20, 30, 40, 60, 80, 120, 200])
def test_no_line_is_wider_than_the_screen(width: int) -> None:
    troubled = busy_state(failures=3, error="x " * 80, warning="y " * 90, term=7, host="h " * 60)
    for published_state in (busy_state(), empty_state(), troubled):
        assert max(map(cells, drawn(published_state, screen_of(width)))) <= width


@pytest.mark.parametrize(
    ("width", "titles"),
    [
        (20, "JOBID ST NODES(RE…"),
        (20, "TIER RUN PEND"),
        (40, "JOBID ST TIER NODES(REASON)"),
        (80, "JOBID USER NAME ST TIER GPUS ATTAINED WAITED NODES(REASON)"),
        (200, "JOBID USER NAME ST TIER GPUS ATTAINED WAITED PREEMPT NODES REASON"),
    ],
)
def test_a_narrow_screen_keeps_what_matters_most(width: int, titles: str) -> None:
    assert titles.split() in [line.split() for line in drawn(busy_state(), screen_of(width))]


def test_names_stay_readable_beside_progress() -> None:
    told = progress(19, remaining_least_s=348.0, remaining_most_s=5280.0)
    jobs = (running("7", name="narrow1", progress=told), waiting("8", name="narrow2"))
    *_, titles, first, second, _footer = drawn(state(*jobs), screen_of(80))
    assert titles.endswith(" NODES(REASON)")
    assert "narrow1" in first and "narrow2" in second


def test_columns_that_do_not_fit_are_named() -> None:
    assert drawn(busy_state(), screen_of(80))[-2:] == [
        "8 jobs; 1 not managed and not shown (-a shows all); no room for PREEMPT (choose",
        "with -o).",
    ]


def test_wide_characters_are_counted_as_wide() -> None:
    lines = drawn(state(waiting("7", name="模型训练" * 20)), screen_of(80))
    assert max(map(cells, lines)) <= 80


def test_colour_changes_no_width() -> None:
    coloured = drawn(busy_state(), screen_of(80, colour=True))
    plain = drawn(busy_state(), screen_of(80))
    assert [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in coloured] == plain
    assert coloured != plain


def test_a_pipe_gets_no_colour_and_nothing_cut(live_site: Site) -> None:
    long_name = "a-very-long-name-" * 20
    live_site.publish(state(waiting("7", name=long_name), at_s=time.time()))
    result = live_site.spawn("status", COLUMNS="40")
    assert result.returncode == 0
    assert ESCAPE not in result.stdout and long_name in result.stdout


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_terminal_gets_colour_and_lines_that_fit(live_site: Site, width: int) -> None:
    live_site.publish(busy_state(at_s=time.time()))
    code, output = live_site.on_terminal(width, "status")
    assert code == 0
    assert ESCAPE in output
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output)
    assert max(map(cells, plain.splitlines())) <= width


def test_a_terminal_lists_the_first_jobs_and_says_how_many_there_are(live_site: Site) -> None:
    jobs = (running(str(i), rank=i) for i in range(1, 1001))
    live_site.publish(state(*jobs, at_s=time.time()))
    _, first = live_site.on_terminal(80, "status")
    assert "The first 200 of 1,000 jobs (-l 0 shows all)" in first.replace("\n", " ")
    assert len(first.splitlines()) < 220
    _, every = live_site.on_terminal(80, "status", "-l", "0")
    assert len(every.splitlines()) > 1000


@pytest.mark.parametrize(
    ("sort", "ids"),
    [
        ("gpus", ["9", "10", "2_1"]),
        ("-GPUS", ["2_1", "10", "9"]),
        ("jobid", ["2_1", "9", "10"]),
        ("-user,jobid", ["9", "2_1", "10"]),
        ("tier,-attained", ["10", "9", "2_1"]),
    ],
)
def test_jobs_are_sorted_as_asked(site: Site, sort: str, ids: list[str]) -> None:
    site.publish(
        state(
            running("10", rank=0, gpus=2, user="a", attained_gpu_s=9.0),
            running("9", rank=1, gpus=1, user="b", attained_gpu_s=8.0),
            running("2_1", rank=2, gpus=16, user="a", tier=1),
        )
    )
    assert site.run("status", "-n", "-o", "JOBID", "-S", sort).stdout.split() == ids


def test_status_watch_says_how_many_lines_do_not_fit() -> None:
    lines = [str(number) for number in range(50)]
    assert cut(lines, 50, 80) == lines
    assert cut(lines, 24, 80)[-2:] == ["22", "27 more lines: choose with --me, -u, -p, -t"]
    assert len(cut(lines, 24, 20)) == 24 and cells(cut(lines, 24, 20)[-1]) <= 20
    assert cut(lines, 1, 80) == ["50 more lines: choose with --me, -u, -p, -t"]


def test_a_limit_applies_to_terminals_and_pipes(site: Site) -> None:
    site.publish(state(*(running(str(i), rank=i) for i in range(1, 11))))
    assert site.run("status", "-n", "-l", "3", "-o", "JOBID").stdout.split() == ["1", "2", "3"]
    assert "The first 3 of 10 jobs" in site.run("status", "-l", "3").stdout


def an_array(tasks: int = 500, running_tasks: int = 3) -> PublishedState:
    """An array whose first tasks run, among other jobs."""
    ran = [running(f"12_{i}", rank=i) for i in range(running_tasks)]
    rest = [waiting(f"12_{i}", rank=i, waited_s=float(i)) for i in range(running_tasks, tasks)]
    return state(*ran, *rest, waiting("13", rank=tasks, user="bob"))


def test_tasks_of_an_array_that_wait_for_the_same_reason_share_a_line(site: Site) -> None:
    site.publish(an_array())
    lines = site.run("status").stdout.splitlines()
    assert [line.split()[0] for line in lines[-6:-1]] == [
        "12_0",
        "12_1",
        "12_2",
        "12_[3-499]",
        "13",
    ]
    assert lines[-1] == "5 lines for 501 jobs; -r shows each task of an array."
    assert site.run("status", "-n", "-o", "waited", "-t", "PD", "-j", "12").stdout == "8m19s\n"


@pytest.mark.parametrize("option", ["-r", "--array"])
def test_arrays_are_unfolded_on_request(site: Site, option: str) -> None:
    site.publish(an_array())
    assert len(shown(site, option)) == 501
    assert "501 jobs." in site.run("status", option).stdout


def test_only_never_started_tasks_with_equal_state_share_a_line(site: Site) -> None:
    site.publish(
        state(
            waiting("12_0", rank=0, action="start", reason="starts"),
            waiting("12_1", rank=1),
            waiting("12_2", rank=2, tier=1),
            waiting("12_3", rank=3, first_started_s=NOW_S - 900, restarts=1, preemptions=1),
            waiting("12_4", rank=4),
            waiting("12_9", rank=5),
            waiting("12+1", rank=6),
            waiting("112_4", rank=7),
        )
    )
    assert shown(site) == ["12_0", "12_[1,4,9]", "12_2", "12_3", "12+1", "112_4"]


def test_jobs_with_odd_ids_have_lines_of_their_own(site: Site) -> None:
    odd = ("7", "7", "8_", "8_", "9_x", "9_x", f"10_{'9' * 11}", f"10_{'9' * 11}")
    site.publish(state(*(waiting(job_id) for job_id in odd)))
    assert len(shown(site)) == len(odd)


def test_a_task_named_by_id_has_its_own_line(site: Site) -> None:
    site.publish(an_array())
    assert shown(site, "-j", "12_7") == ["12_7"]
    assert shown(site, "-j", "12_7,12_8,12_10") == ["12_[7-8,10]"]


def test_a_long_list_of_tasks_is_cut_as_by_squeue(site: Site) -> None:
    site.publish(state(*(waiting(f"12_{i}", rank=i) for i in range(0, 500, 2))))
    (job_id,) = shown(site)
    assert job_id.startswith("12_[0,2,4,") and job_id.endswith(",...]") and len(job_id) < 40


def test_json_has_every_task(site: Site) -> None:
    site.publish(an_array())
    assert len(json.loads(site.run("status", "--json").stdout)["jobs"]) == 501


def test_a_limit_counts_lines(site: Site) -> None:
    site.publish(an_array())
    assert shown(site, "-l", "4")[-1] == "12_[3-499]"
    assert (
        "The first 4 of 5 lines for 501 jobs (-l 0 shows all)"
        in site.run("status", "-l", "4").stdout
    )


@pytest.mark.parametrize("more", [(), ("--json",), ("-n",)])
def test_an_id_of_no_job_is_an_error_as_in_squeue(site: Site, more: tuple[str, ...]) -> None:
    site.publish(busy_state())
    result = site.run("status", "-j", "4071", *more)
    assert result.exit_code == 1 and result.stdout == ""
    assert error_of(result).startswith("No job 4071 waits or runs here: it has ended, was ")
    assert "tiresias-slurm history 4071" in error_of(result)
    assert shown(site, "-j", "4071,40735") == ["40735"]


def test_a_stale_state_does_not_claim_that_a_job_does_not_exist(site: Site) -> None:
    site.publish(busy_state(at_s=NOW_S - 600))
    assert site.run("status", "-j", "4071").exit_code == 3


def test_status_says_if_only_own_jobs_are_shown(site: Site) -> None:
    site.publish(state(waiting("5"), only_of="alice"))
    assert "No job 7 of alice, who may see no others, waits" in error_of(
        site.run("status", "-j", "7")
    )


# Progress


def telling_state() -> PublishedState:
    """Jobs that report progress: working, stalled, waiting, and without a total."""
    goes_on = progress(3700, 10_000, remaining_least_s=7500.0, remaining_most_s=8400.0)
    return state(
        running("1", rank=0, progress=goes_on),
        running("2", rank=1, progress=progress(12, 90, quiet_since_s=NOW_S - 900)),
        waiting("3", rank=2, progress=progress(450)),
        running("4", rank=3, progress=progress(5, None)),
        running("5", rank=4),
    )


def shown_progress(width: int | None) -> dict[str, tuple[str, ...]]:
    columns = chosen(("JOBID", "PROGRESS", "ETA", "REASON"))
    view = View(Selection(), columns, as_asked=True, header=False)
    lines = view.lines(telling_state(), Screen(width=width), NOW_S)
    return {words[0]: tuple(words[1:]) for words in (line.split(None, 3) for line in lines)}


def test_status_shows_progress_and_remaining_time() -> None:
    assert shown_progress(None) == {
        "1": ("37%", "2h05m-2h20m", "runs"),
        "2": ("13%", "1m14s-1m21s", "no progress since Nov 14 21:58:20"),
        "3": ("45%", "-", "no room"),
        "4": ("step", "5", "-  runs"),
        "5": ("-", "-", "runs"),
    }


def test_progress_columns_are_left_out_on_a_terminal_if_no_job_reports() -> None:
    def header(shown: PublishedState, width: int | None) -> str:
        view = View(Selection(), chosen(()))
        lines = view.lines(shown, Screen(width=width), NOW_S)
        return next(line for line in lines if line.lstrip().startswith("JOBID"))

    assert "PROGRESS" in header(telling_state(), 80)
    assert "PROGRESS" not in header(busy_state(), 80)
    assert "PROGRESS" in header(busy_state(), None)


def test_jobs_can_be_sorted_by_progress_and_eta() -> None:
    jobs = telling_state().jobs
    by_progress = [job.job_id for job in sorted_by(("-PROGRESS",), jobs)]
    assert by_progress[-3:] == ["3", "1", "2"]
    assert [job.job_id for job in sorted_by(("ETA",), jobs)][:2] == ["2", "3"]


def test_status_shows_which_jobs_save_nothing_and_why_runs_get_longer() -> None:
    jobs = (
        running("1", rank=0, stuck_runs=3, preemptions=4, min_run_s=1920.0),
        waiting("2", rank=1, name="sweep", program_lost=3, min_run_s=960.0),
        waiting("3", rank=2, name="sweep", program_lost=3, min_run_s=960.0),
    )

    def shown(*others: published.PublishedJob) -> str:
        view = View(Selection(), chosen(()))
        return " ".join(
            " ".join(view.lines(state(*jobs, *others), Screen(width=90), NOW_S)).split()
        )

    assert "saved nothing in its last" in shown()
    assert "Job 1: Its last 3 runs saved nothing" in shown()
    assert (
        "Job 2: The last 3 preemptions of jobs of alice named sweep lost all their work, so it is "
        "not preempted for 16m00s after each start." in shown()
    )
    assert "Job 3: " not in shown()
    of_others = shown(waiting("4", rank=3, user="bob"))
    assert "saved nothing in its last" in of_others
    assert "Job 2: " not in of_others
