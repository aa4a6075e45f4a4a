"""``scripts/dev frameworks`` if nothing can be installed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from scripts import ROOT


def test_missing_pytorch_is_one_line_and_not_an_error(tmp_path: Path) -> None:
    nothing = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}
    ended = subprocess.run(
        [ROOT / "scripts" / "dev", "frameworks", "--short", "--cache", tmp_path],
        env={**os.environ, **nothing},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("frameworks: pytest was left out: ERROR: ")
    assert ended.stdout.count("\n") == 1
