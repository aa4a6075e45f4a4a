"""A cluster on which jobs can report: the plugin, the service of its nodes, and a controller."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from scripts import ROOT
from scripts.testbed.constants import COMMAND
from scripts.testbed.patience import PATIENCE_S
from scripts.testbed.progress_channel import lay_job_library
from scripts.testbed.real_controller import RealController
from tests.spank.plugin import NOBODY, PluginCluster


@contextmanager
def open_channel(
    plugin: PluginCluster,
    folder: Path,
    program: str,
    every_s: float = 0.5,
    **settings: Mapping[str, object],
) -> Iterator[RealController]:
    """Yield the controller; jobs find ``program`` as ``train.py``, and the library in ``lib``.

    ``every_s``: the interval at which the service of the nodes reports the progress of jobs.
    """
    lay_job_library(plugin.work / "lib")
    (plugin.work / "train.py").write_text(program)
    plugin.run_folder.mkdir(mode=0o755)
    profiler: Mapping[str, object] = {"collect_dir": str(plugin.collect_folder)}
    tables = {name: dict(table) for name, table in {**settings, "profiler": profiler}.items()}
    controller = RealController(plugin.cluster, folder, tables)
    folders = ("--run", str(plugin.run_folder), "--collect", str(plugin.collect_folder))
    service = subprocess.Popen(
        [*COMMAND, "profile", "sample", *folders, "--every", f"{every_s}"], cwd=ROOT
    )
    try:
        yield controller.start()
    finally:
        # The next test requires that no job is left.
        plugin.cluster.run("scancel", f"--user={NOBODY}", "--full", "--signal=KILL")
        service.terminate()
        service.wait(timeout=PATIENCE_S)
        controller.end()
