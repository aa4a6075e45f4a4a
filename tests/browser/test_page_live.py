"""The live page of a real controller on a real cluster, in a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scripts.testbed.ports import free_port
from scripts.testbed.real_cluster import RealCluster
from scripts.testbed.real_controller import RealController
from tests.browser.viewer import looking, picture

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.slurm, pytest.mark.long]

HOSTILE = "<img src=x onerror=alert(1)>\u202egnp"
ALL = ("--nodes=4", "--gpus-per-node=4", "--mem=100")
FEW = ("--gres=gpu:2", "--mem=100")


@pytest.fixture
def live(clean_cluster: RealCluster, tmp_path: Path) -> Iterator[tuple[RealController, str]]:
    """Start a controller with a page; yield its address."""
    listen = f"127.0.0.1:{free_port()}"
    controller = RealController(clean_cluster, tmp_path, {"http": {"listen": listen}}).start()
    yield controller, f"http://{listen}/"
    if controller.process:
        controller.stop()


def preempted(controller: RealController) -> tuple[str, str]:
    """A job that held the whole cluster, and the job that preempted it."""
    cluster = controller.cluster
    loser = cluster.sbatch(*ALL, f"--job-name={HOSTILE}")
    controller.wait_for_tier(loser, 1)
    preemptor = cluster.sbatch(*FEW, "--job-name=short")
    controller.wait_until(
        lambda: (loser, preemptor) in controller.events("preempted"),
        "one job preempted for another",
    )
    cluster.wait_for_state(preemptor, "RUNNING")
    return loser, preemptor


def test_a_preemption_is_shown_with_victim_and_preemptor_and_each_jobs_page(
    browser: Browser, live: tuple[RealController, str]
) -> None:
    controller, url = live
    with looking(browser, url) as tab:
        loser, preemptor = preempted(controller)
        event = tab.locator("#events li", has_text=re.compile("preempted")).first
        event.wait_for()
        assert f"job {loser} by job {preemptor}" in event.inner_text()
        tab.locator("#reasons-table th strong").first.wait_for()
        tab.locator(f"#jobs-table a[href='#/jobs/{preemptor}']").wait_for()
        picture(tab, "live")

        event.get_by_role("link", name=f"job {loser}").click()
        title = tab.locator("#job-title", has_text=f"Job {loser}:")
        title.wait_for()
        assert "<img src=x onerror=alert(1)>" in title.inner_text()
        assert "\u202e" not in tab.locator("main").inner_text()
        tab.locator("#job dd", has_text="1 time").wait_for()
        assert tab.evaluate("document.activeElement.id") == "job-title"
        picture(tab, "live-job")

        tab.go_back()
        tab.locator("#overview").wait_for()
        assert tab.locator("#job").is_hidden()


def test_a_job_can_be_reached_from_its_node_with_the_keyboard(
    browser: Browser, live: tuple[RealController, str]
) -> None:
    controller, url = live
    job = controller.cluster.sbatch(*ALL)
    # The page may show an earlier state first, in which the job waits and its node is idle.
    controller.wait_until(
        lambda: (seen := controller.job(job)) is not None and bool(seen.nodes),
        "a state in which the job runs",
    )
    with looking(browser, url) as tab:
        tab.locator(f"#jobs-table a[href='#/jobs/{job}']").wait_for()
        tab.keyboard.press("Tab")
        assert tab.evaluate("document.activeElement.textContent") == "Skip to the content"
        for _ in range(40):
            tab.keyboard.press("Tab")
            if tab.evaluate("document.activeElement.id") == "nodes-map":
                break
        said = tab.locator("#nodes-current")
        first = said.inner_text()
        assert f"job {job} (tier" in first
        tab.keyboard.press("ArrowRight")
        assert said.inner_text() != first
        assert said.get_attribute("aria-posinset") == "2"
        tab.keyboard.press("Enter")
        tab.locator("#node-shown a").wait_for()
        tab.keyboard.press("Tab")
        assert tab.evaluate("document.activeElement.textContent") == f"job {job}"
        tab.keyboard.press("Enter")
        tab.locator("#job-title", has_text=f"Job {job}").wait_for()


def test_a_screen_reader_finds_headings_landmarks_labels_and_headed_tables(
    browser: Browser, live: tuple[RealController, str]
) -> None:
    controller, url = live
    job = controller.cluster.sbatch(*FEW)
    with looking(browser, url) as tab:
        tab.locator(f"#jobs-table a[href='#/jobs/{job}']").wait_for()
        levels = tab.evaluate(
            "[...document.querySelectorAll('h1,h2,h3')].map((h) => Number(h.tagName[1]))"
        )
        assert levels[0] == 1 and levels.count(1) == 1
        assert all(after - before <= 1 for before, after in pairwise(levels))
        for role in ("banner", "main", "navigation", "contentinfo", "search"):
            assert tab.get_by_role(role).count() == 1, role
        tab.get_by_role("searchbox", name="Find", exact=True).wait_for()
        for name in ("State", "Tier"):
            tab.get_by_role("combobox", name=name, exact=True).wait_for()
        without_heads = "[...document.querySelectorAll('table')].filter((t) => !t.tHead).length"
        assert tab.evaluate(without_heads) == 0
        unnamed = """[...document.querySelectorAll('section, [role=region], [role=img]')].filter(
            (e) => !e.ariaLabel && !e.getAttribute('aria-labelledby')).length"""
        assert tab.evaluate(unnamed) == 0
        assert tab.locator("[tabindex]:not([tabindex='0']):not([tabindex='-1'])").count() == 0
        assert tab.locator("#news").get_attribute("aria-live") == "polite"
        tab.get_by_role("table", name="Jobs").get_by_role("columnheader", name="User").wait_for()


def test_the_page_polls_and_mostly_gets_304_not_modified(
    browser: Browser, live: tuple[RealController, str]
) -> None:
    _, url = live
    with looking(browser, url) as tab:
        statuses: list[int] = []
        tab.on("response", lambda answer: statuses.append(answer.status))
        age = tab.locator("#age").inner_text()
        tab.wait_for_function("(was) => document.getElementById('age').textContent != was", arg=age)
        tab.wait_for_timeout(3000)
        assert statuses and set(statuses) <= {200, 304}


def test_the_page_reports_a_stopped_controller_and_keeps_the_last_state(
    browser: Browser, live: tuple[RealController, str]
) -> None:
    controller, url = live
    job = controller.cluster.sbatch(*FEW)
    with looking(browser, url, but="ERR_CONNECTION_REFUSED") as tab:
        tab.locator(f"#jobs-table a[href='#/jobs/{job}']").wait_for()
        controller.kill()
        tab.get_by_role("alert").get_by_text("does not answer").wait_for()
        assert tab.locator(f"#jobs-table a[href='#/jobs/{job}']").is_visible()
        picture(tab, "dead")
