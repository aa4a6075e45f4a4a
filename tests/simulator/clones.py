"""Clones of other projects with invented content."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path


def bare_clone(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Commit the files to a repository in ``folder``; return a clone without a working tree."""
    whole, bare = folder / "whole", folder / "bare"
    for name, content in files.items():
        (whole / name).parent.mkdir(parents=True, exist_ok=True)
        (whole / name).write_bytes(content)
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for command in (
        ("init", "-q", str(whole)),
        ("-C", str(whole), "add", "-A"),
        ("-C", str(whole), *identity, "commit", "-q", "-m", "Add the trace"),
        ("clone", "-q", "--bare", str(whole), str(bare)),
    ):
        subprocess.run(["git", *command], check=True)
    return bare
