"""The C code by itself: it builds without warnings, its unit tests pass, and it exports only what
it must."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from slurm_tiresias.slurm.spank_build import built_for
from tests.spank.plugin import make

HOOKS = {"init", "init_post_opt", "task_init", "job_prolog", "job_epilog"}
MARKS = {"plugin_name", "plugin_type", "plugin_version", "spank_plugin_version"}


@pytest.mark.parametrize(
    "target",
    [
        *("test-plugin", "test-plugin-asan"),
        pytest.param("test-plugin-valgrind", marks=pytest.mark.long),
    ],
)
def test_the_unit_tests_pass(build: Path, target: str) -> None:
    ended = make(f"BUILD={build}", target)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert re.search(r"^[1-9]\d* cases, 0 failed$", ended.stdout, re.MULTILINE)


def test_only_what_slurm_looks_for_is_exported(build: Path) -> None:
    shown = _run("nm", "-D", "--defined-only", str(build / "spank_tiresias.so"))
    names = {line.split()[-1] for line in shown.splitlines()}
    assert names == MARKS | {f"slurm_spank_{hook}" for hook in HOOKS}


def test_the_plugin_needs_nothing_but_libc_and_is_hardened(build: Path) -> None:
    library = str(build / "spank_tiresias.so")
    shown = _run("readelf", "-dlW", library)
    assert re.findall(r"NEEDED.*\[(.*)\]", shown) == ["libc.so.6"]
    assert "GNU_RELRO" in shown and "BIND_NOW" in shown
    assert re.search(r"GNU_STACK .* RW ", shown)
    assert "__stack_chk_fail" in _run("nm", "-D", "--undefined-only", library)


def test_the_plugin_says_for_which_release_it_was_built(build: Path) -> None:
    header = Path("/usr/include/slurm/slurm_version.h").read_text()
    number = re.search(r"SLURM_VERSION_NUMBER\s+(0x[0-9a-f]+)", header)
    assert number
    major, minor, micro = int(number[1], 16).to_bytes(3, "big")
    assert built_for(build / "spank_tiresias.so") == (major, minor, micro)


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
