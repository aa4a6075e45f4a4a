"""The contents of the files that ``tiresias-slurm init`` creates, and the steps to install them.

All content comes from the facts about the cluster (``doctor``) and from the files in ``etc/``,
which are part of the package. This module writes nothing.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files

from slurm_tiresias.cli.config import commented, example_lines, toml
from slurm_tiresias.doctor.checks.controller import DEFAULT_USER
from slurm_tiresias.doctor.diagnosis import Diagnosis, Line, diagnose
from slurm_tiresias.doctor.finding import Finding, Severity
from slurm_tiresias.doctor.seen import Seen
from slurm_tiresias.settings import Config
from slurm_tiresias.settings.controller import ControllerConfig
from slurm_tiresias.text import printable

CONFIG = "tiresias.toml"
CLUSTER = "cluster.toml"
UNIT = "tiresias-slurm.service"
PACKAGED = "/usr/bin/tiresias-slurm"
"""Where the Debian packages install the program; they also bring the unit."""
SLURM_CONF = "slurm.conf.lines"
CGROUP_CONF = "cgroup.conf.lines"
PLUGSTACK = "plugstack.conf.d/tiresias.conf"
JOB_SUBMIT = "job_submit.lua"
NUDGE = "nudge"
STEPS = "STEPS"
NAMES = (CONFIG, CLUSTER, UNIT, SLURM_CONF, CGROUP_CONF, PLUGSTACK, JOB_SUBMIT, NUDGE, STEPS)

EXECUTABLE = frozenset({NUDGE})
INSTALLED_CONFIG = "/etc/slurm-tiresias/tiresias.toml"
DEFAULT_STATE_DIR = ControllerConfig().state_dir


@dataclass(frozen=True, slots=True)
class Choice:
    """The choices for the files. ``because`` is the reason for these thresholds."""

    partitions: tuple[str, ...]
    state_dir: str
    thresholds_gpu_s: tuple[float, ...] | None
    """None: keep the default."""
    because: str
    program: str
    """The path of ``tiresias-slurm``."""
    user: str
    group: str
    """User and group that the service runs as: SlurmUser's."""

    @property
    def packaged(self) -> bool:
        """Whether the program was installed by the packages."""
        return self.program == PACKAGED

    @property
    def has_unit(self) -> bool:
        """Whether the packages' unit can be used unchanged."""
        return self.packaged and (self.user, self.state_dir) == (DEFAULT_USER, DEFAULT_STATE_DIR)


@dataclass(frozen=True, slots=True)
class Step:
    """One of the next steps, with commands to copy."""

    title: str
    commands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeKind:
    """Nodes with the same GPUs: their number, and the GPUs of each."""

    nodes: int
    gpus: int
    gpu_type: str


def node_kinds(seen: Seen, partitions: Sequence[str]) -> tuple[NodeKind, ...]:
    """Return the GPU nodes of these partitions; a node with several GPU types counts by its
    largest."""
    names = {n for p in seen.partitions or () if p.name in partitions for n in p.nodes}
    counted: Counter[tuple[int, str]] = Counter()
    for node in seen.nodes or ():
        if node.name in names and node.total.gpu_count:
            kind = max(node.total.gpus, key=lambda each: node.total.gpus[each])
            counted[node.total.gpu_count, kind] += 1
    return tuple(NodeKind(nodes, gpus, kind) for (gpus, kind), nodes in sorted(counted.items()))


def compose(seen: Seen, choice: Choice, folder: str) -> tuple[Mapping[str, str], tuple[Step, ...]]:
    """Return the files by name, including the one with the steps, and the steps."""
    # The diagnosis as if this configuration were installed and in enforce mode.
    acting = replace(
        configured(choice), controller=ControllerConfig("enforce", state_dir=choice.state_dir)
    )
    diagnosis = diagnose(replace(seen, config=acting, config_there=True, config_error=""))
    written = {
        CONFIG: _config(seen, choice),
        CLUSTER: _cluster(node_kinds(seen, choice.partitions)),
        UNIT: _unit(choice),
        SLURM_CONF: _lines_for(seen.slurm_conf, diagnosis),
        PLUGSTACK: _packaged("plugstack.conf.d/tiresias.conf"),
        JOB_SUBMIT: _job_submit(choice),
        NUDGE: _packaged("nudge"),
    }
    beside = f"{seen.slurm_conf_folder}/cgroup.conf"
    if any(line.file == beside for line in diagnosis.lines.values()):
        written[CGROUP_CONF] = _lines_for(beside, diagnosis)
    steps = _steps(seen, choice, folder, CGROUP_CONF in written)
    return written | {STEPS: "\n".join(step_lines(steps)) + "\n"}, steps


def configured(choice: Choice) -> Config:
    """Return the configuration that the file will contain."""
    default = Config()
    thresholds = choice.thresholds_gpu_s or default.policy.thresholds_gpu_s
    controller = replace(default.controller, state_dir=choice.state_dir)
    return replace(
        default,
        manage=replace(default.manage, partitions=choice.partitions),
        policy=replace(default.policy, thresholds_gpu_s=thresholds),
        controller=controller,
    )


def _config(seen: Seen, choice: Choice) -> str:
    config = configured(choice)
    said: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = {
        ("manage", "partitions"): (toml(choice.partitions), tuple(_about(seen, choice))),
        ("policy", "thresholds_gpu_s"): (toml(config.policy.thresholds_gpu_s), (choice.because,)),
        ("controller", "mode"): (
            toml("shadow"),
            ("It begins in shadow mode: it decides and records, and writes nothing to Slurm.",),
        ),
    }
    if choice.thresholds_gpu_s is None:
        said["policy", "thresholds_gpu_s"] = ("", (choice.because,))
    if choice.state_dir != DEFAULT_STATE_DIR:
        said["controller", "state_dir"] = (toml(choice.state_dir), ())
    cluster = seen.settings.text("ClusterName") if seen.settings else ""
    head = f"# For cluster {printable(cluster)}, by tiresias-slurm init."
    return "\n".join([head, *example_lines(said)]) + "\n"


def _about(seen: Seen, choice: Choice) -> Iterator[str]:
    """Describe these partitions, and say which others are left out."""
    for partition in seen.partitions or ():
        name = printable(partition.name)
        if partition.name in choice.partitions:
            kinds = node_kinds(seen, (partition.name,))
            nodes = ", ".join(
                f"{k.nodes} x {k.gpus} {printable(k.gpu_type) or 'of no type'}" for k in kinds
            )
            yield f"{name}: {seen.gpus_of(partition)} GPUs ({nodes})."
        elif not seen.gpus_of(partition):
            yield f"Left out, because it has no GPUs: {name}."
        else:
            yield f"Left out, because it was not asked for: {name}."


def _cluster(kinds: Sequence[NodeKind]) -> str:
    lines = ["# The nodes with GPUs, as `tiresias-slurm simulate --cluster` and `tune` read them."]
    for kind in kinds:
        lines += ["", "[[group]]", f"nodes = {kind.nodes}", f"gpus = {kind.gpus}"]
        lines += [f"type = {toml(kind.gpu_type)}"] if kind.gpu_type else []
    return "\n".join(lines) + "\n"


def _unit(choice: Choice) -> str:
    text = _packaged(UNIT)
    text = re.sub(
        r"^ExecStart=.*$",
        lambda _: f"ExecStart={choice.program} controller --config {INSTALLED_CONFIG}",
        text,
        flags=re.MULTILINE,
    )
    text = re.sub(r"^User=.*$", lambda _: f"User={choice.user}", text, flags=re.MULTILINE)
    text = re.sub(r"^Group=.*$", lambda _: f"Group={choice.group}", text, flags=re.MULTILINE)
    if choice.state_dir == DEFAULT_STATE_DIR:
        return text
    own = f"ReadWritePaths={choice.state_dir}\n"
    return re.sub(r"^StateDirectory=.*\nStateDirectoryMode=.*\n", lambda _: own, text, flags=re.M)


def _job_submit(choice: Choice) -> str:
    """Return etc/job_submit.lua for these partitions; in shadow mode it does not change jobs."""
    named = ", ".join(toml(name) for name in choice.partitions)
    text = _packaged(JOB_SUBMIT)
    text = text.replace('local partitions = { "gpu" }', f"local partitions = {{ {named} }}")
    return text.replace('local write = "priority"', 'local write = "nothing"')


def _lines_for(path: str, diagnosis: Diagnosis) -> str:
    """Return the lines for one file with their reasons; optional changes are commented out."""
    head = f"# Lines for {path}, as `tiresias-slurm doctor` finds them wanting."
    reasons: dict[Line, list[Finding]] = {}
    for finding in diagnosis.findings:
        for line in diagnosis.lines_of(finding):
            if line.file == path:
                reasons.setdefault(line, []).append(finding)
    body = []
    for line, findings in reasons.items():
        said = [f"{each.severity.value}: {printable(each.seen)}. {each.why}" for each in findings]
        said += [f"{line.place[:1].upper()}{line.place[1:]}:"] if line.place else []
        may_stay = all(each.severity is Severity.NOTE for each in findings)
        if not may_stay:  # such as a daemon to start, which slurmctld needs with this line
            said += [f"First: {printable(each)}" for finding in findings for each in finding.do]
        comments = [part for sentence in said for part in commented(sentence)]
        body.append("\n".join([*comments, f"#{line.line}" if may_stay else line.line]))
    return "\n\n".join([head, *(body or ["# Nothing is wanting."])]) + "\n"


def _packaged(name: str) -> str:
    """Return the text of a file of etc/."""
    return files("slurm_tiresias.cli").joinpath("etc", name).read_text(encoding="utf-8")


def _steps(seen: Seen, choice: Choice, folder: str, has_cgroup: bool) -> tuple[Step, ...]:
    """Return the next steps, and how to undo them."""
    here, slurm = shlex.quote(folder.rstrip("/")), shlex.quote(seen.slurm_conf_folder)
    install_unit, remove_unit = _unit_commands(choice, here)
    install_plugin, remove_program = _package_commands(choice)
    cgroup = (f"cat {here}/{CGROUP_CONF}    # into cgroup.conf of the nodes",) if has_cgroup else ()
    return (
        Step(
            "What it would have done with your own jobs",
            (
                "tiresias-slurm simulate --from-sacct --since now-30days \\",
                f"    --config {here}/{CONFIG} \\",
                f"    --cluster {here}/{CLUSTER}",
            ),
        ),
        Step(
            "Run it in shadow mode: it writes nothing to Slurm",
            (
                f"install -D -m 644 {here}/{CONFIG} {INSTALLED_CONFIG}",
                *install_unit,
                "systemctl enable --now tiresias-slurm",
                "tiresias-slurm status",
            ),
        ),
        Step(
            "After some days: what it would have done, against what happened",
            ("tiresias-slurm shadow report",),
        ),
        Step(
            "Before it may act: the lines of slurm.conf",
            (
                f"cat {here}/{SLURM_CONF}    # into {printable(seen.slurm_conf)}",
                *cgroup,
                "scontrol reconfigure    # restart slurmctld if PriorityType or a plugin changes",
                "tiresias-slurm doctor",
            ),
        ),
        Step(
            "Let it act",
            (
                f"sed -i 's/^#*mode = .*/mode = \"enforce\"/' {INSTALLED_CONFIG}",
                "systemctl restart tiresias-slurm",
            ),
        ),
        Step(
            "If you like: new jobs at once, hints of users, the plugin on the nodes",
            (
                f"install -m 644 {here}/{JOB_SUBMIT} {slurm}/",
                f"sed -i 's/^local write = .*/local write = \"priority\"/' {slurm}/{JOB_SUBMIT}",
                f"install -m 755 {here}/{NUDGE} /etc/slurm-tiresias/{NUDGE}",
                f"cat {here}/{SLURM_CONF}    # now also the lines that are commented out",
                install_plugin,
                f"install -D -m 644 {here}/{PLUGSTACK} {slurm}/{PLUGSTACK}",
                f"echo 'include {slurm}/plugstack.conf.d/*.conf' >> {slurm}/plugstack.conf",
            ),
        ),
        Step(
            "Undo it",
            (
                "# First out of slurm.conf: EpilogSlurmctld and JobSubmitPlugins, if you set them.",
                "tiresias-slurm release    # where it has acted",
                "systemctl disable --now tiresias-slurm",
                *remove_unit,
                *remove_program,
            ),
        ),
    )


def _unit_commands(choice: Choice, here: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the commands to install and to remove the unit; none if the packages' unit is used."""
    if choice.has_unit:
        return (), ()
    install = [f"install -m 644 {here}/{UNIT} /etc/systemd/system/"]
    if choice.state_dir != DEFAULT_STATE_DIR:  # systemd creates the default one itself
        owner = f"-o {choice.user} -g {choice.group}"
        install.append(f"install -d {owner} -m 755 {choice.state_dir}")
    reload = "systemctl daemon-reload"
    return (*install, reload), (f"rm /etc/systemd/system/{UNIT}", reload)


def _package_commands(choice: Choice) -> tuple[str, tuple[str, ...]]:
    """Return how to install the plugin, and the commands to remove it and the program."""
    nodes = "on login and compute nodes"
    if choice.packaged:
        return f"apt-get install ./slurm-tiresias-spank_*.deb    # {nodes}", (
            "apt-get purge slurm-tiresias-controller slurm-tiresias slurm-tiresias-job",
            f"apt-get purge slurm-tiresias-spank    # {nodes}, if you installed it",
        )
    return f"make -C spank install    # in the checkout, {nodes}", (
        "rm -r /etc/slurm-tiresias",
        f"rm -r /usr/lib/slurm-tiresias    # {nodes}, if you installed the plugin",
    )


def step_lines(steps: Sequence[Step]) -> Iterator[str]:
    """Yield the steps as lines, never wrapped, since they are meant to be copied."""
    for number, step in enumerate(steps, start=1):
        if number > 1:
            yield ""
        yield f"{number}. {step.title}"
        yield from (f"     {command}" for command in step.commands)
