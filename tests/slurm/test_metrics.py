"""The metrics of a real controller that works, fails and stands by."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts.testbed.hostile_text import HOSTILE_TEXT
from scripts.testbed.patience import PATIENCE_S
from scripts.testbed.ports import free_port
from scripts.testbed.real_cluster import RealCluster
from scripts.testbed.real_controller import RealController
from scripts.testbed.slurm_commands import Commands
from slurm_tiresias.controller.metric_definitions import METRICS
from tests.slurm.scrape import Scrape

pytestmark = pytest.mark.slurm

ONE_GPU = ("--gres=gpu:1", "--mem=100")
WHOLE_NODE = ("--gres=gpu:4", "--mem=100")
ENDED = "tiresias_job_completion_seconds_count"
HOSTILE_LABEL = 'x"} 1\ntiresias_mode{mode="enforce'

Start = Callable[..., tuple[RealController, int]]


@pytest.fixture
def start(clean_cluster: RealCluster, tmp_path: Path) -> Iterator[Start]:
    """Start controllers that show their metrics; those that still run at the end are killed."""
    started: list[RealController] = []

    def start_one(
        name: str = "one", wait: bool = True, **settings: dict[str, object]
    ) -> tuple[RealController, int]:
        port = free_port()
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        commands = Commands(folder / "bin")
        controller = RealController(
            clean_cluster,
            folder,
            {**settings, "http": {"listen": f"127.0.0.1:{port}"}},
            shared_dir=tmp_path / "state",
            extra_environment=commands.environment,
        )
        started.append(controller)
        if wait:
            controller.start()
        else:
            controller.write_config()
            controller.process = controller.spawn()
        return controller, port

    yield start_one
    for controller in started:
        controller.end()


def wait_for(cluster: RealCluster, port: int, what: str, wanted: Callable[[Scrape], bool]) -> None:
    def shown() -> bool:
        try:
            return wanted(Scrape.of(port))
        except OSError:
            return False

    # An end is counted once accounting has confirmed it, which is asked at growing intervals.
    cluster.wait_until(shown, what)


def is_(name: str, value: float, **labels: str) -> Callable[[Scrape], bool]:
    return lambda scrape: scrape.value(name, **labels) == value


def test_metrics_count_events_and_quote_no_users(clean_cluster: RealCluster, start: Start) -> None:
    before = clean_cluster.sbatch(*ONE_GPU, script="true")
    clean_cluster.wait_for_state(before, "COMPLETED")
    wait_for_the_next_second(clean_cluster)
    controller, port = start()
    assert Scrape.of(port).types() == {metric.name: metric.kind.value for metric in METRICS}
    wall = [clean_cluster.sbatch(*WHOLE_NODE, "--job-name", HOSTILE_LABEL) for _ in range(4)]
    for job in wall:
        controller.wait_for_tier(job, 1)
    wait_for(
        clean_cluster,
        port,
        "all GPUs are held by the second tier",
        is_("tiresias_job_gpus", 16, tier="1", state="running"),
    )
    short = clean_cluster.sbatch(
        *ONE_GPU, "--job-name", HOSTILE_LABEL, "--comment", HOSTILE_TEXT, script="true"
    )
    clean_cluster.wait_for_state(short, "COMPLETED")
    wait_for(clean_cluster, port, "the end of the short job", is_(ENDED, 1))
    wait_for(clean_cluster, port, "the preemption", is_("tiresias_preemptions_total", 1))
    clean_cluster.run("scancel", *wall)
    wait_for(clean_cluster, port, "the end of the others", is_(ENDED, 4, tier="1"))
    scrape = Scrape.of(port)
    told = Scrape(controller.cli("metrics").stdout)
    assert told.types() == scrape.types() and told.value(ENDED) == 5, "asked without the port"
    # Neither the job that had ended before, nor any job twice.
    assert scrape.value(ENDED) == 5
    queued_s = scrape.value("tiresias_job_queueing_seconds_sum")
    jct_s = scrape.value("tiresias_job_completion_seconds_sum")
    assert queued_s is not None and jct_s is not None and 0 <= queued_s < jct_s
    assert scrape.value("tiresias_job_events_total", event="demoted") == 4
    assert (scrape.value("tiresias_writes_total") or 0) >= 6
    assert scrape.value("tiresias_failed_cycles_total") == 0
    assert scrape.value("tiresias_slurm_command_failures_total") == 0
    assert HOSTILE_LABEL not in scrape.text and "evil" not in scrape.text
    assert all(line.startswith(("tiresias_", "# ")) for line in scrape.text.splitlines())
    assert all(f'="{job}"' not in scrape.text for job in (*wall, short))
    counts_of_one_cycle = (
        scrape.value("tiresias_phase_seconds_count", phase="decide"),
        scrape.value("tiresias_cycle_seconds_count"),
    )
    assert counts_of_one_cycle == (scrape.value("tiresias_cycles_total"),) * 2


def test_metrics_show_back_off_and_its_reason(clean_cluster: RealCluster, start: Start) -> None:
    controller, port = start(controller={"interval_s": 0.5}, constants={"COMMAND_TIMEOUT_S": 2})
    fault = controller.folder / "bin" / "fault.scontrol"
    fault.write_text('[ "$2" = ping ] && exec "$@"; echo garbage; exit 0\n')
    wait_for(
        clean_cluster,
        port,
        "that cycles fail",
        lambda scrape: (scrape.value("tiresias_consecutive_failed_cycles") or 0) >= 2,
    )
    # It has the time of a whole pause to be asked in.
    wait_for(
        clean_cluster,
        port,
        "the next try",
        lambda scrape: (scrape.value("tiresias_next_try_seconds") or 0) > 0,
    )
    scrape = Scrape.of(port)
    assert scrape.value("tiresias_trouble", kind="slurm-answer") == 1
    assert scrape.value("tiresias_trouble") == 1
    assert (scrape.value("tiresias_failed_cycles_total", kind="slurm-answer") or 0) >= 2
    age_s = time.time() - (scrape.value("tiresias_last_cycle_timestamp_seconds") or 0)
    assert 0 < age_s < PATIENCE_S
    fault.unlink()
    wait_for(
        clean_cluster, port, "that it is well again", is_("tiresias_consecutive_failed_cycles", 0)
    )
    wait_for(clean_cluster, port, "no trouble", is_("tiresias_trouble", 0))
    wait_for(clean_cluster, port, "no next try", is_("tiresias_next_try_seconds", 0))


def wait_for_the_next_second(cluster: RealCluster) -> None:
    """Slurm's clock ticks in seconds."""
    now_s = int(time.time())
    cluster.wait_until(lambda: time.time() >= now_s + 1, "the next second")
