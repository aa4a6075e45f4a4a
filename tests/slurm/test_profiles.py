"""Profiles of models affect the controller's decisions, on a real cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.testbed.models import tensor_sizes
from scripts.testbed.real_cluster import RealCluster
from scripts.testbed.real_controller import RealController
from scripts.testbed.traffic_files import rounds_of, traffic_file

pytestmark = pytest.mark.slurm

ANYWHERE = ("-n4", "--gpus=4", "--mem-per-cpu=10")


@pytest.fixture
def collect_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "collected"
    folder.mkdir()
    return folder


@pytest.fixture
def controller(
    clean_cluster: RealCluster, tmp_path: Path, collect_dir: Path
) -> Iterator[RealController]:
    settings: dict[str, dict[str, object]] = {
        "policy": {"thresholds_gpu_s": [100000]},
        "profiler": {"collect_dir": str(collect_dir)},
    }
    started = RealController(clean_cluster, tmp_path, settings)
    yield started.start()
    if started.process is not None:
        started.kill()


def placement(controller: RealController, job: str) -> str:
    """Return the output of ``explain`` once the controller has seen the job."""
    controller.wait_until(lambda: controller.job(job), f"{job} is seen")
    lines = controller.cli("explain", job).stdout.splitlines()
    return next(line.strip() for line in lines if "Placement: " in line)


def test_explain_says_by_which_model_and_number_a_job_is_placed(
    clean_cluster: RealCluster, controller: RealController
) -> None:
    skewed = clean_cluster.sbatch(*ANYWHERE, "--comment=tiresias:model=vgg16")
    even = clean_cluster.sbatch(*ANYWHERE, "--comment=run 3 tiresias:model=resnet50")
    assert placement(controller, skewed) == (
        "Placement: consolidated: largest tensor 74 % of vgg16 (built in), limit 50 %."
    )
    assert placement(controller, even) == (
        "Placement: spread: largest tensor 9 % of resnet50 (built in), limit 50 %."
    )


def test_a_second_run_is_placed_by_the_measured_traffic_of_the_first(
    clean_cluster: RealCluster, controller: RealController, collect_dir: Path
) -> None:
    """The files are put where the plugin on the nodes would; the plugin has separate tests."""
    for name, model in (("skewed", "vgg16"), ("even", "resnet50")):
        first = clean_cluster.sbatch(*ANYWHERE, "-J", name, script="true")
        clean_cluster.wait_for_state(first, "COMPLETED")
        content = traffic_file(rounds_of(list(tensor_sizes(model)), 50))
        (collect_dir / f"{first}.0.n1.traffic").write_bytes(content)
    controller.wait_until(lambda: not list(collect_dir.glob("*.traffic")), "both files are read")
    second = {name: clean_cluster.sbatch(*ANYWHERE, "-J", name) for name in ("skewed", "even")}
    assert "consolidated: largest message 74 %" in placement(controller, second["skewed"])
    assert "spread: largest message 9 %" in placement(controller, second["even"])
    listed = json.loads(controller.cli("profile", "list", "--json").stdout)["profiles"]
    assert {p["name"] for p in listed if p["source"] == "traffic"} == set(second)


def test_a_file_is_read_only_after_its_job_was_requeued(
    clean_cluster: RealCluster, controller: RealController, collect_dir: Path
) -> None:
    job = clean_cluster.sbatch(*ANYWHERE, "-J", "long")
    clean_cluster.wait_for_state(job, "RUNNING")
    file = collect_dir / f"{job}.0.n1.traffic"
    file.write_bytes(traffic_file(rounds_of(list(tensor_sizes("alexnet")), 9)))
    controller.cycles(3)
    assert file.exists()
    clean_cluster.run("scontrol", "requeue", job)
    controller.wait_until(lambda: not file.exists(), "the file is read")
    # The controller publishes that the file was taken once that cycle has ended.
    controller.cycles(1)
    assert "consolidated: largest message 61 %" in placement(controller, job)


def test_a_damaged_store_does_not_keep_the_controller_from_scheduling(
    clean_cluster: RealCluster, controller: RealController
) -> None:
    controller.stop()
    for file in controller.state_dir.glob("profiles.sqlite*"):
        file.write_bytes(b"no database at all" * 100)
    controller.start()
    job = clean_cluster.sbatch(*ANYWHERE, "--comment=tiresias:model=vgg16")
    clean_cluster.wait_for_state(job, "RUNNING")
    assert "consolidated: largest tensor 74 % of vgg16" in placement(controller, job)
    assert "placed without the stored profiles" in controller.stop()


def test_an_invalid_hint_does_not_harm_a_job(
    clean_cluster: RealCluster, controller: RealController
) -> None:
    job = clean_cluster.sbatch(*ANYWHERE, "--comment=tiresias:model='; DROP TABLE profiles; --")
    clean_cluster.wait_for_state(job, "RUNNING")
    assert "its hint is not heeded" in placement(controller, job)
