"""What the plugin does on the nodes, and that it never harms a job."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.testbed.real_cluster import SCRIPT
from scripts.testbed.real_controller import RealController
from slurm_tiresias.doctor.checks.plugins import RUN_OPTIONS
from slurm_tiresias.doctor.run_folder import RunFolder, run_folder
from slurm_tiresias.job.record import Record, decode
from slurm_tiresias.slurm.conf_file import PlugstackLine
from tests.profiler.compute_node import SQUASHED, with_rights
from tests.spank.plugin import NOBODY, ROOT, TRAFFIC_FILE_BYTES, TRAFFIC_MAGIC, PluginCluster, make

pytestmark = pytest.mark.slurm

PROFILED = "--tiresias-profile=on"
PLUGSTACK = ROOT / "etc" / "plugstack.conf.d" / "tiresias.conf"

SEND = r"""
import socket, sys
there, here = socket.socket(), socket.socket()
there.bind(("127.0.0.1", 0))
there.listen()
here.connect(there.getsockname())
other, _ = there.accept()
for _ in range(3):
    here.sendall(b"x" * int(sys.argv[1]))
"""

SHOW = 'echo "$TIRESIAS_TRAFFIC_FILE|$LD_PRELOAD"'


@pytest.fixture
def sender(plugin: PluginCluster) -> str:
    """A command that sends three messages of the given size in bytes."""
    (plugin.work / "send.py").write_text(SEND)
    return f"/usr/bin/python3 {plugin.work}/send.py"


def messages(content: bytes, size: int) -> int:
    """Return how many messages of exactly this size a traffic file has counted."""
    octave = size.bit_length() - 1
    slots = 64 + octave * 544 + 32
    counts: dict[int, int] = dict(struct.iter_unpack("<QQ", content[slots : slots + 32 * 16]))
    return counts.get(size, 0)


# Collected files


def test_the_messages_of_the_script_and_of_its_steps_are_collected_at_the_end(
    plugin: PluginCluster, sender: str
) -> None:
    ended = plugin.finish(f"{sender} 3000 && srun {sender} 5000 && srun {sender} 5000", PROFILED)
    assert (ended.status, ended.output) == ("0:0", "")
    (name,) = plugin.collected()
    assert name == f"{ended.job}.0.n1.traffic"
    content = plugin.traffic(name)
    assert len(content) == TRAFFIC_FILE_BYTES and content.startswith(TRAFFIC_MAGIC)
    assert (messages(content, 3000), messages(content, 5000)) == (3, 6)
    mode = (plugin.collect_folder / name).stat()
    assert oct(mode.st_mode & 0o777) == "0o640" and mode.st_uid == os.geteuid()
    assert plugin.left() == []


def test_every_node_of_a_job_has_a_file(plugin: PluginCluster, sender: str) -> None:
    ended = plugin.finish(f"srun {sender} 3000", PROFILED, "--nodes=2")
    assert plugin.collected() == [f"{ended.job}.0.n{node}.traffic" for node in (1, 2)]
    for name in plugin.collected():
        assert messages(plugin.traffic(name), 3000) == 3


def test_an_interactive_job_has_a_file(plugin: PluginCluster, sender: str) -> None:
    plugin.cluster.run("srun", PROFILED, "sh", "-c", f"{sender} 3000")
    # srun does not wait for the epilog; the file has another name while it is copied.
    plugin.cluster.wait_until(
        lambda: any(name.endswith(".n1.traffic") for name in plugin.collected()),
        "a file is collected",
    )
    (name,) = plugin.collected()
    assert messages(plugin.traffic(name), 3000) == 3


def test_a_requeued_job_has_one_file_per_run(plugin: PluginCluster, sender: str) -> None:
    again = 'test -n "$SLURM_RESTART_COUNT" && exit; sleep 600'
    job = plugin.submit(
        f"srun {sender} $((3000 + 1000 * SLURM_RESTART_COUNT)); touch sent; {again}", PROFILED
    )
    plugin.cluster.wait_until((plugin.work / "sent").exists, "the first run has sent")
    plugin.requeue(job)
    plugin.wait(job)
    assert plugin.restarts(job) == 1
    assert plugin.collected() == [f"{job}.{restart}.n1.traffic" for restart in (0, 1)]
    for restart, name in enumerate(plugin.collected()):
        assert messages(plugin.traffic(name), 3000 + 1000 * restart) == 3


def test_each_task_of_an_array_has_a_file(plugin: PluginCluster, sender: str) -> None:
    plugin.submit(f"{sender} 3000", PROFILED, "--array=0-2", "--output=/dev/null")
    plugin.cluster.wait_until(lambda: len(plugin.collected()) == 3, "three files")


def test_the_counts_of_a_cancelled_job_are_collected(plugin: PluginCluster, sender: str) -> None:
    job = plugin.submit(
        f"{sender} 3000; touch sent; trap '' TERM; sleep 600 & wait; wait", PROFILED
    )
    plugin.cluster.wait_until((plugin.work / "sent").exists, "it has sent")
    plugin.cluster.run("scancel", "--signal=KILL", "--full", job)
    plugin.wait(job)
    assert messages(plugin.traffic(f"{job}.0.n1.traffic"), 3000) == 3


# Profiled jobs


def test_only_jobs_that_ask_are_profiled_and_a_step_can_decline(plugin: PluginCluster) -> None:
    assert plugin.finish(f"{SHOW}; srun sh -c '{SHOW}'").output == "|\n|\n"
    assert plugin.collected() == []
    ended = plugin.finish(
        f"{SHOW}; srun sh -c '{SHOW}'; srun --tiresias-profile=off sh -c '{SHOW}'", PROFILED
    )
    file = plugin.run_folder / f"{ended.job}.0.n1.traffic"
    monitor = plugin.library.parent / "libtiresias_monitor.so"
    assert ended.output == f"{file}|{monitor}\n" * 2 + "|\n"


def test_the_line_for_plugstack_conf_counts_no_job_that_did_not_ask(plugin: PluginCluster) -> None:
    lines = PLUGSTACK.read_text().splitlines()
    (line,) = [line for line in lines if not line.startswith("#")]
    kind, _library, *arguments = line.split()
    assert kind == "optional"
    plugin.set_up(*(argument for argument in arguments if not argument.startswith("collect=")))
    assert plugin.finish(f"{SHOW}; srun sh -c '{SHOW}'", "--gpus=1").output == "|\n|\n"
    assert plugin.collected() == []


def test_on_a_cluster_that_profiles_all_with_gpus_a_job_can_decline(plugin: PluginCluster) -> None:
    plugin.set_up("profile=auto")
    assert plugin.finish("true", "--gpus=1", "--tiresias-profile=off").status == "0:0"
    assert plugin.finish("true").status == "0:0"
    assert plugin.collected() == []
    ended = plugin.finish("true", "--gpus=1")
    assert plugin.collected() == [f"{ended.job}.0.n1.traffic"]


@pytest.fixture
def controller(plugin: PluginCluster, tmp_path: Path) -> Iterator[RealController]:
    """A controller that reads the files of the nodes and publishes the known programs; nodes
    measure only unknown ones."""
    plugin.set_up("profile=unknown")
    settings = {"profiler": {"collect_dir": str(plugin.collect_folder)}}
    started = RealController(plugin.cluster, tmp_path, settings)
    yield started.start()
    started.end()


@dataclass(frozen=True, slots=True)
class Trial:
    """Jobs that print whether their tasks are measured."""

    plugin: PluginCluster
    controller: RealController
    sender: str

    def is_counted(self, *options: str) -> bool:
        """Run such a job, and wait until the controller has learned everything from it."""
        script = f"{self.sender} 300000; srun -J step sh -c 'echo ${{TIRESIAS_TRAFFIC_FILE:-no}}'"
        ended = self.plugin.finish(script, *options)
        self.controller.wait_until(lambda: not self.plugin.collected(), "the file is read")
        # The profile is published in the cycle that reads the file, which ends before the next one.
        self.controller.cycles(1)
        assert ended.status == "0:0"
        return ended.output != "no\n"


@pytest.fixture
def trial(plugin: PluginCluster, controller: RealController, sender: str) -> Trial:
    return Trial(plugin, controller, sender)


def test_a_job_is_counted_until_its_program_has_a_profile(trial: Trial) -> None:
    train = ("--gpus=1", "--job-name=my train%\nning")
    assert trial.is_counted(*train)
    assert not trial.is_counted(*train)
    assert trial.is_counted(*train, PROFILED)
    other = ("--gpus=1", "--job-name=other")
    assert trial.is_counted(*other)
    assert not trial.is_counted(*other, "--tiresias-profile=auto")
    known = trial.plugin.collect_folder / "known"
    before = known.read_bytes()
    assert trial.controller.cli("profile", "forget", "other").returncode == 0
    trial.controller.wait_until(
        lambda: known.read_bytes() != before, "the list for the nodes is written"
    )
    assert trial.is_counted(*other)
    assert not trial.is_counted("--gpus=1", "--job-name=third", "--tiresias-profile=off")


def test_a_job_that_names_its_model_is_counted_until_the_model_has_a_profile(trial: Trial) -> None:
    assert not trial.is_counted("--gpus=1", "--tiresias-model=VGG-16")
    assert not trial.is_counted("--gpus=1", "--comment=tiresias:model=vgg16")
    assert trial.is_counted("--gpus=1", "--tiresias-model=mine+1")
    assert not trial.is_counted("--gpus=1", "--tiresias-model=mine+1", "--job-name=other")


def test_a_job_without_gpus_is_only_counted_if_it_asks(trial: Trial) -> None:
    assert not trial.is_counted()
    assert trial.is_counted(PROFILED)


def test_a_job_submitted_by_a_profiled_job_has_no_part_in_its_file(plugin: PluginCluster) -> None:
    inner = f"sbatch --parsable --wait --output={plugin.work}/inner.out --wrap '{SHOW}' >/dev/null"
    ended = plugin.finish(inner, PROFILED)
    assert ended.status == "0:0"
    # The inner job has no option itself, but sbatch passes on the options of the enclosing job.
    assert f"/{ended.job}." not in (plugin.work / "inner.out").read_text()


def test_the_users_own_preloads_stay_first(plugin: PluginCluster) -> None:
    libc = "/lib/x86_64-linux-gnu/libc.so.6"
    ended = plugin.finish(f"LD_PRELOAD={libc} srun sh -c 'echo $LD_PRELOAD'", PROFILED)
    monitor = plugin.library.parent / "libtiresias_monitor.so"
    assert ended.output == f"{libc}:{monitor}\n"


# Progress

REPORT = """
import sys
from slurm_tiresias import job
job.report(int(sys.argv[1]), 100)
"""

SHOW_PROGRESS = (
    'echo "${TIRESIAS_PROGRESS_FILE##*/}|${TIRESIAS_OUTPUT_FILE##*/}|${LD_PRELOAD##*/}'
    '|$TIRESIAS_TRAFFIC_FILE"'
)

NOTHING = "|||\n"


@pytest.fixture
def reporter(plugin: PluginCluster) -> str:
    """A command that reports this many of 100 steps; the controller collects the report."""
    plugin.progress_folder.mkdir()
    library = plugin.work / "lib" / "slurm_tiresias"
    shutil.copytree(
        ROOT / "slurm_tiresias" / "job",
        library / "job",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    shutil.copy(ROOT / "slurm_tiresias" / "__init__.py", library)
    (plugin.work / "report.py").write_text(REPORT)
    return f"env PYTHONPATH={library.parent} /usr/bin/python3 {plugin.work}/report.py"


def progress(plugin: PluginCluster, name: str) -> Record:
    return decode((plugin.progress_folder / name).read_bytes())


def test_the_last_report_of_a_script_is_collected(plugin: PluginCluster, reporter: str) -> None:
    ended = plugin.finish(f"{reporter} 7; {reporter} 42")
    assert (ended.status, ended.output) == ("0:0", "")
    name = f"{ended.job}.0.n1.progress"
    assert (plugin.reported(), plugin.collected(), plugin.left()) == ([name], [], [])
    record = progress(plugin, name)
    assert (record.first_step, record.step, record.total) == (7, 42, 100)
    status = (plugin.progress_folder / name).stat()
    assert oct(status.st_mode & 0o777) == "0o640" and status.st_uid == os.geteuid()


def test_each_node_of_a_step_has_its_last_report(plugin: PluginCluster, reporter: str) -> None:
    ended = plugin.finish(f"srun {reporter} 42", "--nodes=2")
    assert (ended.status, ended.output) == ("0:0", "")
    names = [f"{ended.job}.0.{node}.progress" for node in ("n1", "n2")]
    assert sorted(plugin.reported()) == names
    assert progress(plugin, names[0]).step == 42


def test_a_requeued_job_reports_in_each_run(plugin: PluginCluster, reporter: str) -> None:
    again = 'test -n "$SLURM_RESTART_COUNT" && exit; sleep 600'
    job = plugin.submit(f"srun {reporter} $((1 + SLURM_RESTART_COUNT)); touch sent; {again}")
    plugin.cluster.wait_until((plugin.work / "sent").exists, "the first run has reported")
    plugin.requeue(job)
    plugin.wait(job)
    assert plugin.restarts(job) == 1
    assert plugin.reported() == [f"{job}.{restart}.n1.progress" for restart in (0, 1)]
    for restart, name in enumerate(plugin.reported()):
        assert progress(plugin, name).step == 1 + restart


@pytest.mark.long
def test_each_restart_beside_a_job_of_many_steps_has_its_file(plugin: PluginCluster) -> None:
    """Slurm 22.05 skips the prolog of most of these restarts."""
    busy = plugin.submit(
        "while :; do srun --overlap --ntasks=1 true; sleep 1; done", "--nodelist=n1"
    )
    job = plugin.submit(
        f"{SHOW_PROGRESS} >> {plugin.work}/starts; exec sleep 600", "--nodelist=n1", "--gpus=1"
    )
    starts = plugin.work / "starts"

    def has_started(times: int) -> None:
        plugin.cluster.wait_until(
            lambda: starts.exists() and starts.read_text().count("\n") == times, f"start {times}"
        )

    has_started(1)
    for restart in range(1, 11):
        plugin.requeue(job)
        has_started(restart + 1)
    assert starts.read_text() == "".join(f"{job}.{run}.n1.progress|||\n" for run in range(11))
    plugin.cluster.run("scancel", job, busy)
    plugin.wait(job)
    plugin.wait(busy)
    assert plugin.left() == []


@pytest.mark.usefixtures("reporter")
def test_with_auto_the_output_is_read_and_stays_on_the_node(plugin: PluginCluster) -> None:
    show = f"{SHOW_PROGRESS}; srun sh -c '{SHOW_PROGRESS}'"
    told = "; printf told | dd of=$TIRESIAS_OUTPUT_FILE conv=notrunc status=none"
    ended = plugin.finish(show + told, "--tiresias-progress=auto")
    run = f"{ended.job}.0.n1"
    assert ended.output == f"{run}.progress|{run}.output|libtiresias_monitor.so|\n" * 2
    assert plugin.reported() == plugin.left() == []


def test_progress_can_be_turned_off_by_job_or_site(plugin: PluginCluster, reporter: str) -> None:
    script = f"{SHOW_PROGRESS}; srun sh -c '{SHOW_PROGRESS}'; srun {reporter} 42"
    assert plugin.finish(script, "--tiresias-progress=off").output == NOTHING * 2
    plugin.set_up("progress=off")
    assert plugin.finish(script).output == NOTHING * 2
    assert plugin.reported() == []
    ended = plugin.finish(f"srun {reporter} 42", "--tiresias-progress=on")
    assert plugin.reported() == [f"{ended.job}.0.n1.progress"]


@pytest.mark.usefixtures("reporter")
def test_a_step_can_turn_off_reports_but_not_request_more(plugin: PluginCluster) -> None:
    def step(choice: str) -> str:
        return f"srun --tiresias-progress={choice} sh -c '{SHOW_PROGRESS}'"

    ended = plugin.finish(f"{step('off')}; {step('auto')}")
    assert ended.output == f"{NOTHING}{ended.job}.0.n1.progress|||\n"
    assert plugin.finish(step("on"), "--tiresias-progress=off").output == NOTHING


PROGRESS_TAMPERING = {
    "truncated": 'truncate -s 0 "$TIRESIAS_PROGRESS_FILE"',
    "longer": 'echo more >> "$TIRESIAS_PROGRESS_FILE"',
    "linked": 'ln "$TIRESIAS_PROGRESS_FILE" second',
    "empty": 'head -c 1024 /dev/zero > "$TIRESIAS_PROGRESS_FILE"',
}


@pytest.mark.parametrize("how", PROGRESS_TAMPERING)
def test_a_changed_report_file_is_discarded(plugin: PluginCluster, reporter: str, how: str) -> None:
    ended = plugin.finish(f"{reporter} 42; {PROGRESS_TAMPERING[how]} && exit 3")
    assert (ended.status, ended.output) == ("3:0", "")
    assert (plugin.reported(), plugin.left()) == ([], [])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can put a file in the place of another")
@pytest.mark.parametrize("is_link", [True, False])
def test_a_link_or_foreign_file_in_place_of_a_report_is_discarded(
    plugin: PluginCluster, reporter: str, is_link: bool
) -> None:
    job = plugin.submit(
        f"{reporter} 42; touch sent; until [ -e {plugin.work}/end ]; do sleep 0.1; done"
    )
    plugin.cluster.wait_until((plugin.work / "sent").exists, "it has reported")
    file = plugin.run_folder / f"{job}.0.n1.progress"
    secret = plugin.folder / "secret"
    secret.write_bytes(b"x" * 1024)
    file.unlink()
    if is_link:
        file.symlink_to(secret)
    else:
        shutil.copy(secret, file)
    (plugin.work / "end").touch()
    assert plugin.wait(job).status == "0:0"
    assert (plugin.reported(), plugin.left()) == ([], [])


@pytest.mark.usefixtures("reporter")
def test_the_content_of_a_report_is_collected_unchecked(plugin: PluginCluster) -> None:
    ended = plugin.finish('head -c 1024 /dev/urandom > "$TIRESIAS_PROGRESS_FILE"')
    assert (ended.status, ended.output) == ("0:0", "")
    assert plugin.reported() == [f"{ended.job}.0.n1.progress"]


def test_jobs_report_without_a_collect_folder(plugin: PluginCluster, reporter: str) -> None:
    plugin.progress_folder.rmdir()
    ended = plugin.finish(f"{reporter} 42; srun {reporter} 43; exit 3")
    assert (ended.status, ended.output) == ("3:0", "")
    assert list(plugin.collect_folder.iterdir()) == [] and plugin.left() == []


# Jobs are never harmed

BEHAVIOUR = r"""
try() { echo "== $1"; "${@:2}"; echo "status $?"; }
try fork bash -c 'for i in 1 2 3; do (exit $i) & done; wait -n; ls / | cat; exit 3'
try exec bash -c 'exec /bin/echo exec'
try close /usr/bin/python3 -c 'import os; os.closerange(0, 1024); os._exit(4)'
try kill bash -c 'kill -9 $$'
try step srun -n2 bash -c 'echo step; exit 5'
try closing-step srun /usr/bin/python3 -c 'import os; os.closerange(0, 1024); os._exit(6)'
try killed-step srun bash -c 'kill -9 $$'
try send /usr/bin/python3 SEND 1000
try sending-step srun /usr/bin/python3 SEND 1000
exit 7
"""

MOUNTS = {"full": "mode=0755,size=4k", "read-only": "mode=0755,ro", "bounded": RUN_OPTIONS}

Breaking = Callable[[PluginCluster], None]


def _nothing(plugin: PluginCluster) -> None:
    pass


def _monitor_missing(plugin: PluginCluster) -> None:
    plugin.set_up("monitor=/nowhere/monitor.so", "nccl=/nowhere/nccl.so")


def _monitor_broken(plugin: PluginCluster) -> None:
    broken = plugin.work / "broken.so"
    broken.write_bytes(plugin.library.read_bytes()[:40])
    plugin.set_up(f"monitor={broken}", f"nccl={broken}")


def _run_folder_impossible(plugin: PluginCluster) -> None:
    plugin.set_up("run=/proc/tiresias")


def _run_folder_full(plugin: PluginCluster) -> None:
    plugin.run_folder.mkdir()
    _mount(plugin.run_folder, "full")


def _run_folder_read_only(plugin: PluginCluster) -> None:
    plugin.run_folder.mkdir()
    _mount(plugin.run_folder, "read-only")


def _collect_folder_full(plugin: PluginCluster) -> None:
    _mount(plugin.collect_folder, "full")


def _collect_folder_read_only(plugin: PluginCluster) -> None:
    _mount(plugin.collect_folder, "read-only")


def _collect_folder_missing(plugin: PluginCluster) -> None:
    plugin.collect_folder.rmdir()


def _mount(folder: Path, kind: str) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", MOUNTS[kind], "tiresias-test", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("only root can mount, and not everywhere")


@pytest.fixture
def unmounted(plugin: PluginCluster) -> Iterator[None]:
    """Undo the mounts of a test when it ends."""
    yield
    for folder in (plugin.run_folder, plugin.collect_folder):
        subprocess.run(["umount", str(folder)], capture_output=True, check=False)
    shutil.rmtree(plugin.run_folder, ignore_errors=True)


@pytest.fixture(scope="session")
def undisturbed() -> dict[str, str]:
    """The output of the jobs below without profiling; filled by the first test that needs it."""
    return {}


@pytest.mark.usefixtures("unmounted", "sender")
@pytest.mark.parametrize(
    "breaks",
    [
        _nothing,
        _monitor_missing,
        _monitor_broken,
        _run_folder_impossible,
        _run_folder_full,
        _run_folder_read_only,
        _collect_folder_full,
        _collect_folder_read_only,
        _collect_folder_missing,
    ],
)
def test_a_jobs_output_and_status_do_not_change_with_the_plugin(
    plugin: PluginCluster, undisturbed: dict[str, str], breaks: Breaking
) -> None:
    script = BEHAVIOUR.replace("SEND", f"{plugin.work}/send.py")
    if not undisturbed:
        without = plugin.finish(script, "--tiresias-progress=off")
        undisturbed["output"] = _without_numbers(without.output)
        assert undisturbed["output"].count("status") == 9
    breaks(plugin)
    ended = plugin.finish(script, PROFILED, "--tiresias-progress=auto")
    assert ended.status == "7:0"
    assert _without_numbers(ended.output) == undisturbed["output"]


SRUN_WAITS = re.compile(r"srun: (Job \d+ step creation temporarily disabled|Step created for job)")
"""srun's message while Slurm is still busy with the end of the previous step."""


def _without_numbers(output: str) -> str:
    """The output without job and process ids, which Bash aligns, but with the exit statuses."""
    lines = (
        line if line.startswith("status") else re.sub(r" *\d+", "N", line)
        for line in output.splitlines()
        if not SRUN_WAITS.match(line)
    )
    return "\n".join(lines)


@pytest.fixture
def squashed(plugin: PluginCluster) -> Iterator[None]:
    """On n1, root has no more rights in other users' folders than ordinary users have."""
    without = with_rights(",".join(f"-{right}" for right in SQUASHED))
    start = (str(SCRIPT), "start", "--dir", str(plugin.cluster.folder), "slurmd.n1")
    plugin.cluster.kill("slurmd.n1", signal="TERM")
    try:
        subprocess.run([*without, *start], check=True, capture_output=True)
        yield
        plugin.cluster.kill("slurmd.n1", signal="TERM")
    finally:
        plugin.cluster.start("slurmd.n1")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can lose root's rights")
@pytest.mark.usefixtures("squashed")
def test_with_root_squash_the_collect_folder_is_used_as_its_owner(plugin: PluginCluster) -> None:
    plugin.set_up("profile=unknown")
    known = plugin.collect_folder / "known"
    known.write_text("tiresias-known 1\nmodel mine\n")
    for path, mode in ((known, 0o600), (plugin.collect_folder, 0o700)):
        os.chown(path, NOBODY, NOBODY)
        path.chmod(mode)
    # For root's own jobs: root may no longer access other users' files on the node either.
    submit = ("sbatch", "--parsable", "--wait", "--nodelist=n1", "--gpus=1", "--output=/dev/null")
    plugin.cluster.run(*submit, "--tiresias-model=mine", "--wrap", "true")
    other = plugin.cluster.run(*submit, "--tiresias-model=other", "--wrap", "true").strip()
    name = f"{other}.0.n1.traffic"
    plugin.cluster.wait_until(lambda: list(plugin.collected()) == [name], "it is collected")
    status = (plugin.collect_folder / name).stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (NOBODY, NOBODY, 0o640)


FILL = "head -c 200M /dev/zero"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
@pytest.mark.usefixtures("unmounted")
def test_a_users_files_fill_only_the_run_folders_mount(plugin: PluginCluster, sender: str) -> None:
    plugin.run_folder.mkdir()
    _mount(plugin.run_folder, "bounded")
    conf = str(plugin.cluster.folder / "etc" / "plugstack.conf")
    found = run_folder(PlugstackLine("optional", str(plugin.library), conf, 1))
    assert found == RunFolder(str(plugin.run_folder), True, 32 << 20)
    fill = f'{FILL} >> "$TIRESIAS_TRAFFIC_FILE"; stat -c %b "$TIRESIAS_TRAFFIC_FILE"'
    filler = plugin.submit(f"{fill}; until [ -e {plugin.work}/end ]; do sleep 0.1; done", PROFILED)
    output = plugin.work / f"{filler}.out"
    plugin.cluster.wait_until(
        lambda: output.exists() and output.read_text().count("\n") == 2, "the file is as full"
    )
    complaint, blocks = output.read_text().splitlines()
    assert "No space left on device" in complaint
    assert int(blocks) * 512 <= 32 << 20
    file = plugin.run_folder / f"{filler}.0.n1.traffic"
    assert file.stat().st_dev == plugin.run_folder.stat().st_dev != plugin.folder.stat().st_dev
    # The next job's prolog truncates the file to its original size.
    ended = plugin.finish(f"{sender} 3000", PROFILED)
    assert (ended.status, ended.output) == ("0:0", "")
    assert messages(plugin.traffic(f"{ended.job}.0.n1.traffic"), 3000) == 3
    assert file.stat().st_blocks * 512 == TRAFFIC_FILE_BYTES
    (plugin.work / "end").touch()
    assert plugin.wait(filler).status == "0:0"
    assert plugin.left() == []


TAMPERING = {
    "truncated": ': > "$TIRESIAS_TRAFFIC_FILE"',
    "longer": 'echo more >> "$TIRESIAS_TRAFFIC_FILE"',
    "forged": f'head -c {TRAFFIC_FILE_BYTES} /dev/urandom > "$TIRESIAS_TRAFFIC_FILE"',
    "linked": 'ln "$TIRESIAS_TRAFFIC_FILE" second',
}


@pytest.mark.parametrize("how", TAMPERING)
def test_a_traffic_file_changed_by_the_user_is_discarded(plugin: PluginCluster, how: str) -> None:
    ended = plugin.finish(f"{TAMPERING[how]} && exit 3", PROFILED)
    assert (ended.status, ended.output) == ("3:0", "")
    assert (plugin.collected(), plugin.left()) == ([], [])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's jobs run as another user")
def test_the_user_cannot_replace_the_traffic_file(plugin: PluginCluster) -> None:
    attempts = (
        'rm -f "$TIRESIAS_TRAFFIC_FILE"',
        'ln -sf /etc/shadow "$TIRESIAS_TRAFFIC_FILE"',
        f"touch {plugin.run_folder}/1.0.n1.traffic",
    )
    ended = plugin.finish("\n".join(f"{each} 2>/dev/null; echo $?" for each in attempts), PROFILED)
    assert ended.output == "1\n1\n1\n"
    assert plugin.collected() == [f"{ended.job}.0.n1.traffic"]


def test_a_plugin_for_another_release_is_skipped(plugin: PluginCluster, tmp_path: Path) -> None:
    headers = tmp_path / "include"
    shutil.copytree("/usr/include/slurm", headers / "slurm")
    version = headers / "slurm" / "slurm_version.h"
    number = re.compile(r"(#define SLURM_VERSION_NUMBER\s+)0x\w+")
    text, replaced = number.subn(r"\g<1>0x010203", version.read_text())
    assert replaced == 1
    version.write_text(text)
    foreign = plugin.folder / "foreign"
    library = foreign / "spank_tiresias.so"
    made = make(f"BUILD={foreign}", f"SLURM_INCLUDE={headers}", str(library))
    assert made.returncode == 0, made.stderr
    plugin.set_up(library=library)
    ended = plugin.finish("echo runs; srun echo steps; exit 3")
    # srun itself reports, on its stderr, that it skips the plugin.
    printed = [line for line in ended.output.splitlines() if not line.startswith("srun: ")]
    assert (ended.status, printed) == ("3:0", ["runs", "steps"])
    assert re.search(r"Incompatible (Slurm )?plugin .*version", ended.output)
    assert "[tiresias]" not in plugin.cluster.run("sbatch", "--help")
