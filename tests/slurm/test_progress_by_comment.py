"""Jobs that report through their comment, on a real Slurm: the part of the job library."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.testbed.patience import wait_until
from scripts.testbed.real_cluster import RealCluster, short_folder
from slurm_tiresias.job.comment import decode, split
from tests.other_user import as_root

USER_ID = 65534
PYTHON = "/usr/bin/python3"
STOPPED_S = 6.0

WORDS = (
    'it\'s "mine", a=b; 100% %s %k\ttab\\n über 日本 `x` $(y) |pipe|\ntwo  lines, tiresias:model=a '
)
WORDS += "x" * (300 - len(WORDS) - 2) + "  "

pytestmark = [pytest.mark.slurm, as_root]

LIFE_OF_A_DAY = """
import time
from slurm_tiresias.job.session import Session

now_s = 5000.0
session = Session(clock=lambda: now_s)
for step in range(1, 4321):
    now_s += 20
    session.report(step, 5000)
    command = session._channel._command
    while command is not None and command.poll() is None:
        time.sleep(0.002)
"""

STEPS = f"""
import json, sys, time
from pathlib import Path
from slurm_tiresias.job.session import Session

folder = Path(sys.argv[1])
shift_s = 0.0
session = Session(clock=lambda: time.monotonic() + shift_s)
session.report(0, 10**6)
(folder / "ready").touch()
while not (folder / "go").exists():
    time.sleep(0.01)
shift_s = 100.0
delays, step, began_s = [], 0, time.monotonic()
while time.monotonic() - began_s < {STOPPED_S}:
    time.sleep(0.005)
    step += 1
    before_s = time.monotonic()
    session.report(step, 10**6)
    delays.append(time.monotonic() - before_s)
session.done()
asked = session._channel._answer is not None or session._channel._state.pace.updates > 0
draft = folder / "draft"
draft.write_text(json.dumps([asked, step, max(delays)]))
draft.rename(folder / "delays")
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the user can write to."""
    with short_folder() as above:
        path = above / "user"
        path.mkdir()
        path.chmod(0o777)
        yield path


def submitted(
    cluster: RealCluster, readable: Path, folder: Path, program: str, *options: str
) -> str:
    """Submit a job of the user that runs a program, with the user's own comment; return its id."""
    script = f"exec {PYTHON} - {folder} << 'END'\n{program}\nEND"
    environment = f"ALL,PYTHONPATH={readable},TMPDIR={folder},TIRESIAS_PROGRESS=comment"
    return cluster.run(
        *("setpriv", f"--reuid={USER_ID}", f"--regid={USER_ID}", "--clear-groups"),
        *("sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null"),
        *(f"--export={environment}", f"--comment={WORDS}", *options, "--wrap", script),
    ).strip()


def comment_of(cluster: RealCluster, job: str) -> str:
    return cluster.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%k").removesuffix("\n")


def test_a_day_of_reports_keeps_the_users_words_with_some_25_updates(
    clean_cluster: RealCluster, readable: Path, folder: Path
) -> None:
    clean_cluster.run("sdiag", "--reset")
    job = submitted(clean_cluster, readable, folder, LIFE_OF_A_DAY)
    clean_cluster.wait_for_state(job, "COMPLETED")
    words, word = split(comment_of(clean_cluster, job))
    assert words == WORDS
    assert decode(word).total == 5000 and decode(word).step > 3000
    updates = re.search(r"REQUEST_UPDATE_JOB .*count:(\d+)", clean_cluster.run("sdiag"))
    assert updates is not None and 18 <= int(updates[1]) <= 32


def test_an_array_task_updates_only_itself(
    clean_cluster: RealCluster, readable: Path, folder: Path
) -> None:
    """The last task has the number of the whole array."""
    program = f"import os\nif os.environ['SLURM_ARRAY_TASK_ID'] == '2':\n  exec({LIFE_OF_A_DAY!r})"
    array = submitted(clean_cluster, readable, folder, program, "--array=1-2")
    for task in ("1", "2"):
        clean_cluster.wait_for_state(f"{array}_{task}", "COMPLETED")
    assert comment_of(clean_cluster, f"{array}_1") == WORDS
    words, word = split(comment_of(clean_cluster, f"{array}_2"))
    assert words == WORDS and decode(word)


def test_a_heterogeneous_job_updates_only_its_first_component(
    clean_cluster: RealCluster, readable: Path, folder: Path
) -> None:
    job = submitted(clean_cluster, readable, folder, LIFE_OF_A_DAY, ":", "--comment=second")
    clean_cluster.wait_for_state(f"{job}+0", "COMPLETED")
    rows = clean_cluster.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%i|%k").split(f"{job}+")
    assert rows[2] == "1|second\n"
    words, word = split(rows[1].removeprefix("0|").removesuffix("\n"))
    assert words == WORDS and decode(word)


def test_no_step_waits_for_a_slurmctld_that_has_stopped(
    clean_cluster: RealCluster, readable: Path, folder: Path
) -> None:
    job = submitted(clean_cluster, readable, folder, STEPS)
    clean_cluster.wait_until((folder / "ready").exists, "the program runs")
    clean_cluster.kill("slurmctld", signal="STOP")
    try:
        (folder / "go").touch()
        wait_until((folder / "delays").exists)
    finally:
        clean_cluster.kill("slurmctld", signal="CONT")
    asked, steps, longest_s = json.loads((folder / "delays").read_text())
    assert asked and steps > 20
    # Some milliseconds, plus delays of a busy machine; the command takes as long as Slurm stops.
    assert longest_s < STOPPED_S / 2
    clean_cluster.wait_for_state(job, "COMPLETED")
    assert split(comment_of(clean_cluster, job))[0] == WORDS
