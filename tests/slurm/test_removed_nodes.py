"""Nodes that are removed from slurm.conf while slurmctld still runs with them."""

from __future__ import annotations

import os
from pathlib import Path

from slurm_tiresias.model import Amount, Node
from slurm_tiresias.slurm.protocol import Observation
from slurm_tiresias.slurm.removed_nodes import RemovedNodes

SEEN = Observation(0.0, (), tuple(Node(f"n{n}", Amount({"": 4}, 8, 100)) for n in range(1, 5)), ())


def write(path: Path, text: str) -> None:
    path.write_text(text)
    written_ns = path.stat().st_mtime_ns
    os.utime(path, ns=(written_ns, written_ns + 1_000_000_000 * len(text)))


def out_of_service(watch: RemovedNodes) -> list[str]:
    return [node.name for node in watch.applied(SEEN).nodes if not node.available]


def test_a_node_counts_as_removed_until_the_file_names_it_again(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    write(conf, "NodeName=DEFAULT CPUs=8\nnodename=n[1-2] CPUs=8\nNodeName=n[3-4]\n")
    watch = RemovedNodes(str(conf))
    assert not watch.have_changed()
    assert watch.applied(SEEN) is SEEN
    write(conf, "NodeName=n[1-2] CPUs=8 # without n[3-4]\nNodeName=n4\n")
    assert watch.have_changed()
    assert out_of_service(watch) == ["n3"]
    assert not watch.have_changed()
    write(conf, "NodeName=n[1-4]\n")
    assert watch.have_changed()
    assert out_of_service(watch) == []


def test_a_node_removed_from_an_included_file_counts(tmp_path: Path) -> None:
    conf, nodes = tmp_path / "slurm.conf", tmp_path / "nodes.conf"
    write(nodes, "NodeName=n[1-4]\n")
    write(conf, "ClusterName=x\nInclude nodes.conf\n")
    watch = RemovedNodes(str(conf))
    write(nodes, "NodeName=n[2-4]\n")
    assert watch.have_changed()
    assert out_of_service(watch) == ["n1"]
    write(conf, "ClusterName=x\nNodeName=n[1-2]\n")
    nodes.unlink()
    assert watch.have_changed()
    assert out_of_service(watch) == ["n3", "n4"]


def test_a_file_that_is_empty_odd_or_absent_removes_no_node(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    absent = RemovedNodes(str(conf))
    write(conf, "NodeName=n[1-4]\n")
    watch = RemovedNodes(str(conf))
    for text in ("", "NodeName=n[1-\n"):
        write(conf, text)
        assert not watch.have_changed()
    conf.unlink()
    assert not watch.have_changed()
    assert not absent.have_changed()
    assert not RemovedNodes("").have_changed()
    assert watch.applied(SEEN) is SEEN


def test_nodes_that_the_file_never_named_stay_in_service(tmp_path: Path) -> None:
    """Dynamic nodes, and those of a host with an old copy."""
    conf = tmp_path / "slurm.conf"
    write(conf, "NodeName=n1\n")
    watch = RemovedNodes(str(conf))
    write(conf, "NodeName=n[1-2]\n")
    assert not watch.have_changed()
    assert out_of_service(watch) == []
