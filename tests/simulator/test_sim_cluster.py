"""The simulated cluster: its files, what jobs may use of it, and the costs."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_tiresias.config import parse
from slurm_tiresias.errors import UsageError
from slurm_tiresias.model import Allocation, PlacementStyle
from slurm_tiresias.simulator import run, schedulers
from slurm_tiresias.simulator.cluster_file import MOST_BYTES
from slurm_tiresias.simulator.engine import Ask, Outcome, Simulation, Timing
from slurm_tiresias.simulator.sim_cluster import PLACEMENTS, Costs, SimCluster, parse_cluster
from slurm_tiresias.simulator.workload import TraceJob, Workload, paper480

EXAMPLES = Path(__file__).parents[2] / "etc" / "clusters"

TWO_TYPES = """
[[group]]
nodes = 2
gpus = 8
type = "V100"
nodes_per_switch = 1

[[group]]
nodes = 3
gpus = 4
type = "p100"
switch = "old"

[[group]]
nodes = 8
gpus = 1
switch = "old"
"""
"""Two nodes of eight, three of four, eight of one: 36 GPUs."""

UNPROTECTED = parse({"preemption": {"min_run_s": 0}})


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.toml"
    path.write_text(TWO_TYPES)
    return path


def described(path: Path, placement: str = "skew") -> SimCluster:
    return parse_cluster(str(path), placement)


def a_job(gpus: int, gpu_type: str = "") -> TraceJob:
    return TraceJob("1", 0.0, gpus, 100.0, gpu_type=gpu_type)


def workload(*jobs: tuple[float, int, float, str]) -> Workload:
    """Jobs by arrival, GPUs, duration and GPU type."""
    return Workload(
        "test",
        tuple(
            TraceJob(str(i), at_s, gpus, long_s, gpu_type=gpu_type)
            for i, (at_s, gpus, long_s, gpu_type) in enumerate(jobs)
        ),
    )


# Nodes


def test_nodes_times_gpus_is_a_cluster() -> None:
    sim_cluster = parse_cluster("15x4", "skew")
    assert (
        len(sim_cluster.as_nodes()),
        sim_cluster.gpus,
        sim_cluster.notes([a_job(1, "v100")]),
    ) == (15, 60, ())
    assert sim_cluster == SimCluster(15, 4)


def test_a_file_describes_nodes_of_several_kinds(cluster: Path) -> None:
    sim_cluster = described(cluster)
    nodes = sim_cluster.as_nodes()
    assert sim_cluster.gpus == 36 == sum(node.total.gpu_count for node in nodes)
    assert [node.total.gpu_count for node in nodes] == [8] * 2 + [4] * 3 + [1] * 8
    assert [sorted(node.features) for node in nodes] == [["v100"]] * 2 + [["p100"]] * 3 + [[]] * 8
    switches = [node.switch for node in nodes]
    assert switches[0] != switches[1]
    assert set(switches[2:]) == {"old"}


@pytest.mark.parametrize("count", [1, 9, 10, 100, 1234])
def test_the_names_of_nodes_sort_as_their_numbers_do(count: int) -> None:
    names = [node.name for node in parse_cluster(f"{count}x4", "skew").as_nodes()]
    assert names == sorted(names)
    assert len(set(names)) == count


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.name)
def test_the_example_files_are_valid_clusters(path: Path) -> None:
    assert parse_cluster(str(path), "skew").gpus > 0


def test_there_are_examples() -> None:
    assert list(EXAMPLES.glob("*.toml"))


# Eligible nodes


def test_a_job_runs_on_the_named_gpu_type_or_on_any(cluster: Path) -> None:
    sim_cluster = described(cluster)
    assert [sim_cluster.gpus_for(kind) for kind in ("", "v100", "V100", "P100", "h100")] == [
        36,
        16,
        16,
        12,
        36,
    ]
    assert (
        sim_cluster.request(4, "V100") == sim_cluster.request(4, "v100") != sim_cluster.request(4)
    )
    assert sim_cluster.request(4, "h100") == sim_cluster.request(4)
    assert sim_cluster.can_run(a_job(16, "v100"))
    assert not sim_cluster.can_run(a_job(17, "v100"))
    assert sim_cluster.can_run(a_job(36, "h100"))
    assert not sim_cluster.can_run(a_job(37))


def test_gpu_types_that_no_node_has_are_reported_with_the_effect(cluster: Path) -> None:
    sim_cluster = described(cluster)
    jobs = [a_job(1, kind) for kind in ("t4", "t4", "\x1b[2J", "v100", "")]
    (note,) = sim_cluster.notes(jobs)
    assert note == "3 jobs name GPUs that no node has ('t4', '\\x1b[2J'): they run on any"
    assert "cannot run" in replace(sim_cluster, strict_types=True).notes(jobs)[0]
    assert sim_cluster.notes(jobs[3:]) == ()
    (long,) = sim_cluster.notes([a_job(1, str(number) * 1000) for number in range(100)])
    assert long.count("'") == 10
    assert len(long) < 300


def test_the_fewest_nodes_for_a_job_are_the_largest_ones(cluster: Path) -> None:
    sim_cluster = described(cluster)
    assert [sim_cluster.fewest_nodes(gpus) for gpus in (1, 8, 9, 16, 17, 20, 21, 28, 29, 36)] == [
        1,
        1,
        2,
        2,
        3,
        3,
        4,
        5,
        6,
        13,
    ]
    assert [sim_cluster.fewest_nodes(gpus, "p100") for gpus in (4, 5, 12)] == [1, 2, 3]
    assert SimCluster(15, 4).fewest_nodes(9) == 3


def test_a_consolidated_only_job_requests_the_fewest_nodes(cluster: Path) -> None:
    sim_cluster = described(cluster)
    assert sim_cluster.request(9, only_consolidated=True).max_nodes == 2
    assert sim_cluster.request(9, "p100", only_consolidated=True).max_nodes == 3
    assert sim_cluster.request(9).max_nodes is None
    assert described(cluster, "pooled").request(36, only_consolidated=True).max_nodes is None


def test_pooled_placement_has_one_node_per_gpu_type(cluster: Path) -> None:
    sim_cluster = described(cluster, "pooled")
    nodes = sim_cluster.as_nodes()
    assert {tuple(node.features): node.total.gpu_count for node in nodes} == {
        ("v100",): 16,
        ("p100",): 12,
        (): 8,
    }
    assert len(parse_cluster("256x8", "pooled").as_nodes()) == 1
    three = dict.fromkeys((node.name for node in nodes), nodes[0].total)
    assert not Costs(sim_cluster, speeds=True, flat_s=None).is_spread(a_job(9), three)


# Costs


@pytest.mark.parametrize(
    ("job", "nodes", "spread"),
    [
        (a_job(8), 1, False),
        (a_job(8), 2, True),
        (a_job(8, "p100"), 2, False),
        (a_job(8, "p100"), 3, True),
        (a_job(8, "h100"), 2, True),
        (a_job(17), 3, False),
    ],
)
def test_a_job_is_spread_on_more_nodes_than_it_needs_of_its_type(
    cluster: Path, job: TraceJob, nodes: int, spread: bool
) -> None:
    costs = Costs(described(cluster), speeds=True, flat_s=None)
    there = {node.name: node.total for node in costs.cluster.as_nodes()[:nodes]}
    assert costs.is_spread(job, there) == spread
    assert costs.speed(replace(job, model="vgg16"), there) == (0.73 if spread else 1.0)


class Watched:
    """A cost model without costs that records where every job started."""

    def __init__(self) -> None:
        self.starts: dict[str, list[Allocation]] = {}

    def speed(self, job: TraceJob, allocation: Allocation) -> float:
        self.starts.setdefault(job.job_id, []).append(allocation)
        return 1.0

    def is_spread(self, job: TraceJob, allocation: Allocation) -> bool:
        return False

    def restart_s(self, job: TraceJob) -> float:
        return 0.0

    def save_every_s(self, job: TraceJob) -> float:
        return 0.0

    def tells_saves(self, job: TraceJob) -> bool:
        return False


def where_they_ran(jobs: Workload, sim_cluster: SimCluster) -> tuple[Watched, tuple[Outcome, ...]]:
    style = sim_cluster.style() or PlacementStyle.CONSOLIDATE
    kinds = {
        (job.gpus, sim_cluster.type_for(job.gpu_type)): Ask(
            sim_cluster.request(job.gpus, job.gpu_type), style
        )
        for job in jobs.jobs
    }
    watched = Watched()
    outcomes = Simulation(
        jobs.jobs,
        schedulers.tiresias(UNPROTECTED, sim_cluster.as_nodes()),
        watched,
        Timing(),
        lambda job: kinds[job.gpus, sim_cluster.type_for(job.gpu_type)],
    ).run()
    return watched, outcomes


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_jobs_run_on_their_type_of_gpu_in_every_placement(cluster: Path, placement: str) -> None:
    sim_cluster = described(cluster, placement)
    kinds = ("v100", "p100", "", "h100", "P100")
    jobs = workload(*((float(i * 20), 1 + i * 5 % 12, 90.0 + i, kinds[i % 5]) for i in range(60)))
    watched, outcomes = where_they_ran(jobs, sim_cluster)
    assert len(outcomes) == 60
    has = {node.name: next(iter(node.features), "") for node in sim_cluster.as_nodes()}
    for job in jobs.jobs:
        for allocation in watched.starts[job.job_id]:
            assert sum(amount.gpu_count for amount in allocation.values()) == job.gpus
            if wanted := sim_cluster.type_for(job.gpu_type):
                assert {has[name] for name in allocation} == {wanted}


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_file_of_equal_nodes_equals_the_short_notation(tmp_path: Path, placement: str) -> None:
    path = tmp_path / "alike.toml"
    path.write_text("[[group]]\nnodes = 10\ngpus = 4\n[[group]]\nnodes = 5\ngpus = 4\n")

    def outcomes(sim_cluster: SimCluster) -> tuple[Outcome, ...]:
        setup = run.Setup(
            sim_cluster, UNPROTECTED, Costs(sim_cluster, speeds=True, flat_s=None), Timing()
        )
        return run.simulate(paper480(), "tiresias-l", setup)

    assert outcomes(described(path, placement)) == outcomes(parse_cluster("15x4", placement))


def test_random_placement_hardly_ever_consolidates_wide_jobs() -> None:
    def share_spread(placement: str) -> float:
        """The share of the run time of jobs with several GPUs."""
        sim_cluster = parse_cluster("15x4", placement)
        setup = run.Setup(
            sim_cluster, UNPROTECTED, Costs(sim_cluster, speeds=True, flat_s=0.0), Timing()
        )
        outcomes = run.simulate(paper480(), "tiresias-l", setup)
        wide = [outcome for outcome in outcomes if outcome.job.gpus > 1]
        ran_s = sum(end_s - start_s for outcome in wide for start_s, end_s in outcome.runs)
        return sum(outcome.spread_s for outcome in wide) / ran_s

    assert share_spread("random") > 0.9
    assert share_spread("consolidate") < 0.6


BLOCKS = """
[[group]]
nodes = 8
gpus = 4
nodes_per_block = [2, 4]
"""


@pytest.mark.parametrize(("gpus", "starts_s"), [(8, 100), (12, 200), (16, 200), (20, 200)])
def test_a_job_waits_for_the_smallest_block_that_is_large_enough(
    tmp_path: Path, gpus: int, starts_s: float
) -> None:
    """At 100 s, two nodes of each block of four are idle. Five nodes are more than any block."""
    path = tmp_path / "blocks.toml"
    path.write_text(BLOCKS)
    sim_cluster = described(path)
    assert sim_cluster.as_nodes()[5].blocks == ((2, "0/2"), (4, "0/1"))
    running = [(0.0, 8, ran_s, "") for ran_s in (100.0, 300.0, 100.0, 200.0)]
    _, outcomes = where_they_ran(workload(*running, (1.0, gpus, 10.0, "")), sim_cluster)
    assert outcomes[-1].first_start_s == starts_s


# Invalid clusters

GROUP = "[[group]]\nnodes = 2\ngpus = 8\n"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "has no groups of nodes"),
        ("group = 3", "has no groups of nodes"),
        ("group = [3]", "has no groups of nodes"),
        ("group = []", "has no groups of nodes"),
        ("[group]\nnodes = 2", "has no groups of nodes"),
        ("[[groups]]\nnodes = 2", "has an unknown key 'groups'"),
        ('"\\u001b[2J" = 1\n' + GROUP, "has an unknown key '\\x1b[2J'"),
        ("strict_types = 1\n" + GROUP, "strict_types = 1 is neither true nor false"),
        ("[[group]]\nnodes = 2", "group 1 has no gpus"),
        (GROUP + "[[group]]\ngpus = 2", "group 2 has no nodes"),
        (GROUP + "node = 1", "group 1 has no key 'node'"),
        ("[[group]]\nnodes = 0\ngpus = 8", "group 1: nodes = 0 is out of range"),
        ("[[group]]\nnodes = true\ngpus = 8", "group 1: nodes = True is out of range"),
        ("[[group]]\nnodes = 2.0\ngpus = 8", "group 1: nodes = 2.0 is out of range"),
        ('[[group]]\nnodes = "2"\ngpus = 8', "group 1: nodes = '2' is out of range"),
        ("[[group]]\nnodes = 2\ngpus = 10000", "group 1: gpus = 10000 is out of range"),
        (f"[[group]]\nnodes = 2\ngpus = {'9' * 4000}", "group 1: gpus = 9999"),
        (f"[[group]]\nnodes = 0x{'f' * 9000}\ngpus = 1", "nodes = something huge is out of range"),
        ("[[group]]\nnodes = 60000\ngpus = 8\n" * 2, "has 120000 nodes"),
        (GROUP.replace("2", "99999") + "nodes_per_switch = 1", "has 99999 switches"),
        (GROUP + "nodes_per_switch = 0", "nodes_per_switch = 0 is out of range"),
        (GROUP + 'nodes_per_switch = 1\nswitch = "a"', "has both switch and nodes_per_switch"),
        (GROUP + "nodes_per_block = 4", "nodes_per_block = 4 are no sizes of blocks"),
        (GROUP + "nodes_per_block = [0]", "nodes_per_block = [0] are no sizes of blocks"),
        (GROUP + "nodes_per_block = [true]", "nodes_per_block = [True] are no sizes"),
        (GROUP + "nodes_per_block = [4, 6]", "nodes_per_block = [4, 6] are no sizes"),
        (GROUP + "type = 7", "group 1: type = 7 is not a valid name"),
        (GROUP + 'type = ""', "group 1: type = '' is not a valid name"),
        (GROUP + 'type = "a|b"', "group 1: type = 'a|b' is not a valid name"),
        (GROUP + 'type = "a\\nb"', "group 1: type = 'a\\nb' is not a valid name"),
        (GROUP + 'switch = "0/1"', "group 1: switch = '0/1' is not a valid name"),
        (GROUP + f'switch = "{"a" * 65}"', "is not a valid name"),
        ("group = ", "is not valid TOML"),
        (f"a = {'9' * 5000}", "is not valid TOML"),
        ("a = " + "[" * 100_000, "is not valid TOML"),
        ("#" * (MOST_BYTES + 1), "is larger than a megabyte"),
    ],
)
def test_errors_in_a_file_are_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        parse_cluster(str(path), "skew")
    assert complaint in error.value.what
    assert str(path) in error.value.what
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 250 + len(str(path))


@pytest.mark.parametrize(
    "spec",
    [
        *("", "15", "15x", "x4", "15y4", "-1x4", "15x4x2", "no/such/file", "\0", "a\nb", "/"),
        *("0x4", "15x0", "100001x1", "1x10000", f"{'9' * 5000}x1", os.devnull),
    ],
)
def test_a_cluster_that_is_neither_numbers_nor_a_file_is_a_one_line_error(spec: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_cluster(spec, "skew")
    assert "is not a cluster" in error.value.what or "has no groups" in error.value.what
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 250
