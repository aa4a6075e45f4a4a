"""The channel by which jobs of a test cluster report progress: plugin, library and service."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from scripts import ROOT
from scripts.testbed import constants

LIBRARY = "library"
"""Folder of the channel in which jobs find the package ``slurm_tiresias`` with the job library."""


def lay_job_library(into: Path) -> None:
    """Install the job library as its own wheel contains it."""
    package = into / "slurm_tiresias"
    shutil.copytree(
        ROOT / "slurm_tiresias" / "job",
        package / "job",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    shutil.copy(ROOT / "slurm_tiresias" / "__init__.py", package)


def set_up(folder: Path, *arguments: str) -> Path:
    """Build the plugin, and make all files and folders that the channel needs in a folder.

    Returns the ``plugstack.conf`` for the cluster, with further ``arguments`` of the plugin; the
    controller's ``collect_dir`` is ``FOLDER/collect``.
    """
    make = ["make", "--silent", "-C", str(ROOT / "spank"), f"BUILD={folder}/build"]
    subprocess.run(make, check=True)
    (folder / "collect").mkdir()
    (folder / "run").mkdir(mode=0o755)
    lay_job_library(folder / LIBRARY)
    plugin = f"{folder}/build/spank_tiresias.so"
    plugstack = folder / "plugstack.conf"
    folders = f"run={folder}/run collect={folder}/collect"
    plugstack.write_text(" ".join(("optional", plugin, folders, *arguments)) + "\n")
    return plugstack


def start_service(
    folder: Path, every_s: float, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start the progress service of the nodes, which all share one folder here."""
    folders = ("--run", f"{folder}/run", "--collect", f"{folder}/collect")
    command = (*constants.COMMAND, "profile", "sample", *folders, "--every", f"{every_s}")
    if environment is None:
        return subprocess.Popen(command, cwd=ROOT)
    with (folder / "service.log").open("wb") as log:
        # It may outlive this program, whose output must then end.
        return subprocess.Popen(
            command, cwd=ROOT, stdout=log, stderr=log, env=environment, start_new_session=True
        )
