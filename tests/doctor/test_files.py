"""Slurm's files as administrators write them, and the release in a plugin's file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_tiresias.doctor.run_folder import RunFolder, run_folder
from slurm_tiresias.slurm import conf_file
from slurm_tiresias.slurm.conf_file import PlugstackLine
from slurm_tiresias.slurm.spank_build import built_for

CONF = r"""
# ClusterName=old
ClusterName=new   # not old
killwait = 30
PreemptMode=OFF JobRequeue=1
SchedulerParameters=a,b,\
c
NodeName=n[1-4] CPUs=4 Gres=gpu:4
PartitionName=gpu Nodes=ALL KillWait=99
Include more.conf
KillWait=40
Comment="two words"
"""


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    (tmp_path / "more.conf").write_text("JobFileAppend=1\n")
    path = tmp_path / "slurm.conf"
    path.write_text(CONF)
    return path


def test_the_last_setting_of_a_key_counts_in_any_case(conf: Path) -> None:
    found = conf_file.settings(conf)
    assert (found["killwait"].value, found["killwait"].line) == ("40", 11)
    assert found["clustername"].value == "new"


def test_several_settings_may_share_a_line_and_one_may_take_several(conf: Path) -> None:
    found = conf_file.settings(conf)
    assert (found["preemptmode"].value, found["jobrequeue"].value) == ("OFF", "1")
    assert found["preemptmode"].line == found["jobrequeue"].line == 5
    assert found["schedulerparameters"].value == "a,b,c"
    assert found["schedulerparameters"].line == 6
    assert found["comment"].value == "two words"


def test_lines_that_describe_nodes_or_partitions_are_not_settings(conf: Path) -> None:
    assert {"cpus", "gres", "nodes"}.isdisjoint(conf_file.settings(conf))


def test_an_included_file_is_read_and_named(conf: Path) -> None:
    found = conf_file.settings(conf)["jobfileappend"]
    assert (found.value, found.file, found.line) == ("1", str(conf.parent / "more.conf"), 1)


def test_a_file_that_includes_itself_is_read_in_finite_time(tmp_path: Path) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text("Include slurm.conf\nKillWait=1\n")
    assert conf_file.settings(path)["killwait"].value == "1"


def test_plugins_are_found_through_patterns_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "plugstack.conf.d"
    folder.mkdir()
    (folder / "b.conf").write_text("optional /b.so x=1\n# required /no.so\n")
    (folder / "a.conf").write_text("required /a.so\n")
    path = tmp_path / "plugstack.conf"
    path.write_text("include plugstack.conf.d/*.conf\nOptional /c.so\n")
    found = conf_file.plugins(path)
    assert [(line.demand, line.path) for line in found] == [
        ("optional", "/c.so"),
        ("required", "/a.so"),
        ("optional", "/b.so"),
    ]


@given(st.text(max_size=400))
def test_no_text_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("conf") / "slurm.conf"
    path.write_text(text.replace("nclude", ""), encoding="utf-8", errors="replace")
    conf_file.settings(path)
    conf_file.plugins(path)


MOUNTINFO = """\
24 1 0:22 / /run rw,nosuid,nodev shared:5 - tmpfs tmpfs rw,size=1632k,mode=755
90 24 0:50 / {parent}/own rw,nosuid shared:9 - tmpfs tmpfs rw,size=32768k,nr_inodes=300,mode=755
91 24 0:51 / {parent}/unlimited rw shared:9 - tmpfs tmpfs rw,size=0k
92 24 0:52 / {parent}/default rw - tmpfs none rw,inode64
93 24 0:22 /part {parent}/part rw,nosuid shared:5 - tmpfs tmpfs rw,size=1632k,mode=755
94 24 0:53 / {parent}/disk rw - ext4 /dev/vdb rw
95 24 0:54 / {parent}/hidden rw - tmpfs tmpfs rw,size=32768k
96 95 0:55 / {parent}/hidden rw - overlay overlay rw,lowerdir=/x
"""


def plugin_line(folder: Path, *lines: str) -> PlugstackLine:
    file = folder / "plugstack.conf"
    file.write_text("\n".join(["# run=/commented", *lines, "optional /other.so run=/others"]))
    return PlugstackLine("optional", "/x/spank_tiresias.so", str(file), 2)


@pytest.mark.parametrize(
    ("name", "own", "limit_bytes"),
    [
        ("own", True, 32 << 20),
        ("unlimited", True, None),
        ("default", True, None),
        ("part", False, None),
        ("disk", False, None),
        ("hidden", False, None),
        ("none", False, None),
    ],
)
def test_a_run_folder_is_bounded_by_a_tmpfs_that_is_mounted_on_it(
    tmp_path: Path, name: str, own: bool, limit_bytes: int | None
) -> None:
    parent = tmp_path.resolve()
    (parent / name).mkdir()
    mounts = parent / "mountinfo"
    mounts.write_text(MOUNTINFO.format(parent=parent))
    line = plugin_line(parent, f"optional /x/spank_tiresias.so run={parent / name}")
    assert run_folder(line, mounts) == RunFolder(str(parent / name), own, limit_bytes)


@pytest.mark.parametrize(
    "lines",
    [
        ("optional /x/spank_tiresias.so profile=auto run={}",),
        ("optional /x/spank_tiresias.so run=/nonexistent run={} # run=/no",),
        ("optional /x/spank_tiresias.so \\", "  profile=auto \\", "  run={}"),
    ],
)
def test_the_run_folder_is_that_of_the_plugins_line(tmp_path: Path, lines: tuple[str, ...]) -> None:
    line = plugin_line(tmp_path, *(each.format(tmp_path) for each in lines))
    found = run_folder(line)
    assert found is not None and found.path == str(tmp_path.resolve())


def test_a_missing_run_folder_is_none(tmp_path: Path) -> None:
    assert run_folder(plugin_line(tmp_path, "optional /x/spank_tiresias.so run=/nowhere")) is None
    assert run_folder(replace(plugin_line(tmp_path, ""), file="/nowhere")) is None


PLUGINS = sorted(Path("/usr/lib/x86_64-linux-gnu/slurm-wlm").glob("*.so"))


@pytest.mark.skipif(not PLUGINS, reason="no plugins of Slurm's on this machine")
def test_slurms_own_plugins_say_for_which_release_they_were_built() -> None:
    found = {built_for(path) for path in PLUGINS}
    assert len(found - {None}) == 1
    assert (found - {None}).pop() >= (22, 5, 0)  # type: ignore[operator]


def test_a_file_that_is_not_a_plugin_has_no_release(tmp_path: Path) -> None:
    for number, content in enumerate((b"", b"#!/bin/sh\n", b"\x7fELF\x02\x01" + b"\xff" * 90)):
        path = tmp_path / f"{number}.so"
        path.write_bytes(content)
        assert built_for(path) is None


@pytest.mark.skipif(not PLUGINS, reason="no plugins of Slurm's on this machine")
@given(st.integers(0, 4000), st.integers(0, 255), st.integers(0, 1))
def test_a_corrupt_plugin_file_raises_no_error(
    tmp_path_factory: pytest.TempPathFactory, at: int, byte: int, end: int
) -> None:
    image = bytearray(min(PLUGINS, key=lambda path: path.stat().st_size).read_bytes())
    image[len(image) - 1 - at if end else at] = byte
    path = tmp_path_factory.mktemp("so") / "broken.so"
    path.write_bytes(image)
    built_for(path)
