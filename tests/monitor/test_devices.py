"""Traffic that bypasses sockets: sends of RDMA verbs, and collectives of NCCL."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.monitor.running import Monitor, announced

NCCL_INTERFACES = ("1", "2", "3", "4", "5")


def test_sends_of_verbs_are_counted_up_to_the_one_refused(monitor: Monitor) -> None:
    ended = monitor.run(monitor.program("verbs_user"))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert monitor.messages().listed == announced(ended.stdout) == {3096: 4, 3000: 2}


def test_verbs_work_without_a_traffic_file(monitor: Monitor) -> None:
    monitor.file.unlink()
    ended = monitor.run(monitor.program("verbs_user"))
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_program_without_verbs_does_not_load_them(monitor: Monitor) -> None:
    ended = monitor.python("print(open('/proc/self/maps').read())")
    assert "libtiresias_monitor" in ended.stdout
    assert "libibverbs" not in ended.stdout


@pytest.mark.parametrize("version", NCCL_INTERFACES)
def test_the_bytes_of_each_nccl_collective_are_counted(monitor: Monitor, version: str) -> None:
    ended = monitor.run(monitor.program("nccl_host"), str(monitor.nccl_plugin), version)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert monitor.collectives().listed == announced(ended.stdout)
    assert max(monitor.collectives().listed) == 411_041_792
    assert monitor.messages().total_bytes == 0


@pytest.mark.parametrize("version", NCCL_INTERFACES)
def test_without_a_traffic_file_no_nccl_events_are_asked(monitor: Monitor, version: str) -> None:
    off = replace(monitor, settings={"TIRESIAS_TRAFFIC_FILE": "/nonexistent"})
    ended = off.run(monitor.program("nccl_host"), str(monitor.nccl_plugin), version)
    assert (ended.returncode, ended.stderr, ended.stdout) == (0, "", "")
