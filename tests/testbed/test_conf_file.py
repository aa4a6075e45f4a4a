"""``scripts/cluster --conf-file``: further files beside slurm.conf."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from scripts.testbed.real_cluster import SCRIPT


@pytest.mark.parametrize(
    ("name", "complaint"),
    [("missing.conf", "is not a file"), ("slurm.conf", "is written by this script")],
)
def test_an_unusable_conf_file_is_one_line(tmp_path: Path, name: str, complaint: str) -> None:
    file = tmp_path / name
    if name != "missing.conf":
        file.touch()
    folder = Path(f"/tmp/st-{os.getpid()}-{name}")  # paths of Unix sockets may not be long
    ended = subprocess.run(
        [str(SCRIPT), "up", "--dir", str(folder), "--conf-file", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2 and not folder.exists()
    assert complaint in ended.stderr and ended.stderr.count("\n") == 1
