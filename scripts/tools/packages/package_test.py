"""The checks that scripts/dev packages runs in order on a clean machine."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import click

from scripts.testbed.debian.root import Root
from scripts.tools.packages import press_tab

SERVICE = "tiresias-slurm"
RUN_MOUNT = r"run-slurm\x2dtiresias.mount"
CONFIG = "/etc/slurm-tiresias/tiresias.toml"
STATE = "/var/lib/slurm-tiresias"
CLUSTER = "/srv/cluster"
SLURM = {"SLURM_CONF": f"{CLUSTER}/etc/slurm.conf"}
SHELL_PACKAGES = ("bash-completion", "fish", "man-db", "zsh")
SLURM_PACKAGES = ("munge", "slurm-client", "slurmctld", "slurmd")
OURS = ("/src/*", "/now/*", "/later/*", "/proc/*", "/var/cache/man/cat*")
"""Paths that the test itself writes to; man caches the pages it has shown."""

PRESS_TAB = f"/src/scripts/tools/packages/{Path(press_tab.__file__).name}"
MOST_TAB_CPU_S = 2.0
"""CPU seconds that a shell may use to answer TAB, including its own start."""


class TrialError(click.ClickException):
    """The packages do not behave as they should."""


class Packages:
    """The packages of one version, in a folder of that name on the machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        names = sorted(path.name for path in folder.glob("*.deb"))
        self.files = tuple(f"/{folder.name}/{name}" for name in names)
        (self.wheel,) = (f"/{folder.name}/{path.name}" for path in folder.glob("*tiresias-*.whl"))
        (self.job_wheel,) = (f"/{folder.name}/{path.name}" for path in folder.glob("*_job-*.whl"))
        self.version = self.wheel.split("-")[1]


def expect(truth: object, otherwise: str) -> None:
    if not truth:
        raise TrialError(otherwise)


def installs(root: Root, now: Packages, _later: Packages) -> None:
    """The packages install, with their dependencies."""
    root.apt_get("install", "--no-install-recommends", *now.files)
    root.run("runuser", "-u", "slurm", "true")
    owner = root.run("stat", "-c", "%U %a", STATE).strip()
    expect(owner == "slurm 755", f"{STATE} is {owner}")
    said = root.run("tiresias-slurm", "--version")
    expect(said.strip().endswith(f"version {now.version}"), said)
    root.run("tiresias-job", "report", "3/10")


def starts_nothing(root: Root, _now: Packages, _later: Packages) -> None:
    """Installing enabled and started nothing."""
    for unit in (f"{SERVICE}.service", f"{SERVICE}-sampler.service", RUN_MOUNT):
        code, enabled = root.ask("systemctl", "is-enabled", unit)
        expect(code != 0 and enabled.strip() == "disabled", f"{unit} is {enabled}")
        _, active = root.ask("systemctl", "is-active", unit)
        expect(active.strip() == "inactive", f"{unit} is {active}")
        root.run("systemd-analyze", "verify", "--recursive-errors=no", unit)
    commands = root.run("sh", "-c", r"cat /proc/[0-9]*/cmdline | tr '\0' ' '")
    expect("tiresias-slurm controller" not in commands, commands)


def bounds_the_run_folder(root: Root, _now: Packages, _later: Packages) -> None:
    """The folder into which users' jobs write is a separate file system of limited size."""
    root.run("systemctl", "enable", "--now", RUN_MOUNT)
    options = root.run("findmnt", "--noheadings", "--output=OPTIONS", "/run/slurm-tiresias")
    for wanted in ("size=32768k", "nr_inodes=300", "mode=755", "nodev", "nosuid", "noexec"):
        expect(wanted in options.strip().split(","), options)
    root.run("systemctl", "disable", "--now", RUN_MOUNT)


def begins_in_shadow_mode(root: Root, _now: Packages, _later: Packages) -> None:
    """The configuration is valid, and starts in shadow mode."""
    expect("in shadow mode" in root.run("tiresias-slurm", "config", "check"), "not in shadow mode")


def status_says_that_nothing_runs(root: Root, _now: Packages, _later: Packages) -> None:
    """Without a controller, status exits with 3 and one line; a closed output causes no error."""
    code, text = root.ask("tiresias-slurm", "status")
    expect(code == 3 and text.startswith("tiresias-slurm: error: "), f"{code}: {text}")
    expect(len(text.splitlines()) == 1, text)
    closed = root.run("sh", "-c", "tiresias-slurm --version >&-")
    expect(not closed, closed)


def has_a_manual(root: Root, _now: Packages, _later: Packages) -> None:
    """Every command has a manual page, in which man finds no errors."""
    root.apt_get("install", "--no-install-recommends", *SHELL_PACKAGES)
    main_pages = ((1, SERVICE), (1, "tiresias-job"), (8, f"{SERVICE}-controller"))
    for section, page in (*main_pages, (5, "tiresias.toml")):
        shown = root.run("man", str(section), page, env={"MANWIDTH": "80"})
        expect("NAME" in shown and "SEE ALSO" in shown, shown)
    for command in _commands(root):
        root.run("man", "-w", "-".join((SERVICE, *command)))
    pages = root.run("sh", "-c", "ls /usr/share/man/man?/tiresias*").split()
    for page in pages:
        warned = root.run("sh", "-c", f"man --warnings -l {page} 2>&1 >/dev/null")
        expect(not warned, f"{page}: {warned}")


def _commands(root: Root) -> list[tuple[str, ...]]:
    """Return all commands, from the program's own help."""
    found = list(_listed(root))
    return [*found, *(inner for command in found for inner in _listed(root, *command))]


def _listed(root: Root, *command: str) -> list[tuple[str, ...]]:
    text = root.run("tiresias-slurm", *command, "--help").partition("\nCommands:\n")[2]
    return [(*command, name) for name in re.findall(r"^  (\S+)", text, re.MULTILINE)]


LINES = {
    "tiresias-slurm expl": "tiresias-slurm explain ",
    "tiresias-slurm status --parti": "tiresias-slurm status --partition ",
    "tiresias-slurm config ch": "tiresias-slurm config check ",
}
"""What is typed, and the expected completion at TAB."""


def completes(root: Root, _now: Packages, _later: Packages) -> None:
    """TAB completes in bash, zsh and fish."""
    for typed, expected in LINES.items():
        for shell in ("bash", "zsh", "fish"):
            pressed = root.run("python3", PRESS_TAB, shell, typed)
            answer = json.loads(pressed)
            expect(answer["line"] == expected, f"{shell}: {typed!r} became {answer['line']!r}")
            expect(answer["cpu_s"] < MOST_TAB_CPU_S, f"{shell} took {answer}")
            print(f"   {shell}: {typed!r} in {answer['took_s']:.2f} s, CPU {answer['cpu_s']:.2f} s")


def runs_beside_slurm(root: Root, _now: Packages, _later: Packages) -> None:
    """The enabled service runs in its sandbox beside a real Slurm, which loads the plugin."""
    root.apt_get("install", "--no-install-recommends", *SLURM_PACKAGES)
    plugin = "/usr/share/doc/slurm-tiresias-spank/examples/plugstack.conf.d/tiresias.conf"
    root.run("install", "-d", "-o", "slurm", "-g", "slurm", CLUSTER)
    root.run("cp", plugin, "/srv/plugstack.conf")
    root.run(
        *("runuser", "-u", "slurm", "--", "/src/scripts/cluster", "up", "--dir", CLUSTER),
        *("--nodes", "1", "--no-accounting", "--conf-file", "/srv/plugstack.conf"),
    )
    _write(
        root,
        f"/etc/systemd/system/{SERVICE}.service.d/slurm.conf",
        f"[Service]\nEnvironment=SLURM_CONF={SLURM['SLURM_CONF']}\n",
    )
    root.run("sed", "-i", "s/^#interval_s = .*/interval_s = 1.0/", CONFIG)
    root.run("systemctl", "enable", "--now", SERVICE)
    sees_a_job(root, "runuser", "-u", "slurm", "--", env=SLURM)
    offered = root.run("srun", "--help", env=SLURM)
    expect("--tiresias-model" in offered, "Slurm did not load the plugin")


def _write(root: Root, path: str, text: str) -> None:
    file = root.folder / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def sees_a_job(root: Root, *as_user: str, env: Mapping[str, str] | None = None) -> None:
    """Check that a submitted job is shown, so the service reads Slurm and publishes."""
    options = ("--parsable", "--requeue", "--gpus=1", "--chdir=/tmp", "--output=/dev/null")
    job = root.run(*as_user, "sbatch", *options, "--wrap=sleep 600", env=env).strip()
    root.until("status shows it", "sh", "-c", f"tiresias-slurm status -n -j {job} | grep {job}")
    root.run(*as_user, "scancel", job, env=env)


def upgrades(root: Root, now: Packages, later: Packages) -> None:
    """An upgrade keeps the edited configuration and the ledger, and restarts the service."""
    config, jobs = root.run("cat", CONFIG), _jobs(root)
    before = _main_process(root)
    expect(jobs, "the ledger is empty")
    root.apt_get("install", "--no-install-recommends", *later.files)
    said = root.run("tiresias-slurm", "--version")
    expect(said.strip().endswith(f"version {later.version}"), said)
    expect(root.run("cat", CONFIG) == config, "the configuration was changed")
    expect(jobs <= _jobs(root), "the ledger was changed")
    expect(root.run("systemctl", "is-active", SERVICE).strip() == "active", "it does not run")
    expect(_main_process(root) != before, "the old version still runs")
    sees_a_job(root, "runuser", "-u", "slurm", "--", env=SLURM)


def _main_process(root: Root) -> str:
    return root.run("systemctl", "show", "--property=MainPID", SERVICE).strip()


def _jobs(root: Root) -> set[tuple[str]]:
    """Return the jobs in the ledger."""
    path = root.folder / STATE.lstrip("/") / "ledger.sqlite"
    with closing(sqlite3.connect(path)) as ledger:
        return set(ledger.execute("SELECT key FROM jobs"))


def leaves_stopped_what_is_stopped(root: Root, _now: Packages, later: Packages) -> None:
    """An upgrade does not start a service that was stopped and disabled."""
    root.run("systemctl", "disable", "--now", SERVICE)
    root.apt_get("install", "--no-install-recommends", "--reinstall", *later.files)
    _, active = root.ask("systemctl", "is-active", SERVICE)
    _, enabled = root.ask("systemctl", "is-enabled", SERVICE)
    expect((active.strip(), enabled.strip()) == ("inactive", "disabled"), f"{active}{enabled}")


def removes(root: Root, _now: Packages, _later: Packages) -> None:
    """Removing the package stops the service, and keeps its state and configuration."""
    root.run("systemctl", "enable", "--now", SERVICE)
    said = root.apt_get("remove", "slurm-tiresias-controller", "slurm-tiresias-spank")
    expect("tiresias-slurm hand-back" in said, f"nothing said about the priorities:\n{said}")
    commands = root.run("sh", "-c", r"cat /proc/[0-9]*/cmdline | tr '\0' ' '")
    expect("tiresias-slurm controller" not in commands, commands)
    root.run("test", "-s", f"{STATE}/ledger.sqlite")
    root.run("test", "-s", CONFIG)
    root.run("/src/scripts/cluster", "down", "--dir", CLUSTER)


def purges(root: Root, _now: Packages, _later: Packages) -> None:
    """Purging removes everything, and lists what it removed."""
    names = ("slurm-tiresias", "slurm-tiresias-controller", "slurm-tiresias-job")
    said = root.apt_get("purge", *names, "slurm-tiresias-spank")
    expect(f"Removing {STATE}" in said, f"not said that the ledger goes:\n{said}")
    root.run("rm", "-r", f"/etc/systemd/system/{SERVICE}.service.d")
    left = root.run(
        *("find", "/", "-xdev", "-iname", "*tiresias*"),
        *(word for path in OURS for word in ("-not", "-path", path)),
    )
    expect(not left, f"left behind:\n{left}")
    packages = root.run("dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\\n")
    expect("tiresias" not in packages, packages)


def works_as_a_wheel(root: Root, now: Packages, _later: Packages) -> None:
    """Each wheel is complete by itself."""
    root.run("python3", "-m", "zipfile", "-e", now.job_wheel, "/tmp/job-wheel")
    said = root.run(
        *("python3", "-c", "from slurm_tiresias import job; list(job.steps(3, print))"),
        env={"PYTHONPATH": "/tmp/job-wheel"},
    )
    expect(said == "3\n", said)
    root.run("python3", "-m", "zipfile", "-e", now.wheel, "/tmp/wheel")
    said = root.run(
        *("python3", "-m", "slurm_tiresias.cli", "simulate", "--json", "--policy", "tiresias-l"),
        env={"PYTHONPATH": "/tmp/wheel"},
    )
    expect(json.loads(said), said)


TRIALS: tuple[Callable[[Root, Packages, Packages], None], ...] = (
    installs,
    starts_nothing,
    bounds_the_run_folder,
    begins_in_shadow_mode,
    status_says_that_nothing_runs,
    has_a_manual,
    completes,
    runs_beside_slurm,
    upgrades,
    leaves_stopped_what_is_stopped,
    removes,
    purges,
    works_as_a_wheel,
)
"""The order matters: each check leaves the machine in the state that the next one needs."""
