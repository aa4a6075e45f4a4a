"""The contents of the files that ``tiresias-slurm init`` creates, and the steps to install them.

All content comes from the facts about the cluster (``doctor``) and from the files in ``etc/``,
which are part of the package. This module writes nothing.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from string import Template

from slurm_tiresias.cli.config import commented, example_lines, toml
from slurm_tiresias.doctor.checks.controller import DEFAULT_USER
from slurm_tiresias.doctor.diagnosis import Diagnosis, Line, diagnose
from slurm_tiresias.doctor.finding import Finding, Severity
from slurm_tiresias.doctor.seen import Seen
from slurm_tiresias.settings import Config
from slurm_tiresias.simulator.cluster_file import NodeGroup
from slurm_tiresias.text import printable

CONFIG = "tiresias.toml"
CLUSTER = "cluster.toml"
UNIT = "tiresias-slurm.service"
SLURM_CONF = "slurm.conf.lines"
CGROUP_CONF = "cgroup.conf.lines"
PLUGSTACK = "plugstack.conf.d/tiresias.conf"
JOB_SUBMIT = "job_submit.lua"
NUDGE = "nudge"
STEPS = "STEPS"
NAMES = (CONFIG, CLUSTER, UNIT, SLURM_CONF, CGROUP_CONF, PLUGSTACK, JOB_SUBMIT, NUDGE, STEPS)

PACKAGED = "/usr/bin/tiresias-slurm"
"""Where the Debian packages install the program; they also bring the unit."""
INSTALLED_CONFIG = "/etc/slurm-tiresias/tiresias.toml"
DEFAULT = Config()
DEFAULT_STATE_DIR = DEFAULT.controller.state_dir


@dataclass(frozen=True, slots=True)
class Choice:
    """The choices for the files. ``because`` is the reason for the thresholds."""

    config: Config
    because: str
    program: str
    """The path of ``tiresias-slurm``."""
    user: str
    group: str
    """User and group that the service runs as: SlurmUser's."""

    @property
    def partitions(self) -> tuple[str, ...]:
        return self.config.manage.partitions

    @property
    def state_dir(self) -> str:
        return self.config.controller.state_dir


@dataclass(frozen=True, slots=True)
class Step:
    """One of the next steps, with commands to copy."""

    title: str
    commands: tuple[str, ...]


def node_groups(seen: Seen, partitions: Sequence[str]) -> tuple[NodeGroup, ...]:
    """Return the GPU nodes of these partitions; a node with several GPU types counts by its
    largest."""
    names = {n for p in seen.partitions or () if p.name in partitions for n in p.nodes}
    counted: Counter[tuple[int, str]] = Counter()
    for node in seen.nodes or ():
        if node.name in names and node.total.gpu_count:
            gpu_type = max(node.total.gpus, key=lambda each: node.total.gpus[each])
            counted[node.total.gpu_count, gpu_type] += 1
    return tuple(NodeGroup(nodes, *of_each) for of_each, nodes in sorted(counted.items()))


def compose(seen: Seen, choice: Choice, folder: str) -> tuple[Mapping[str, str], tuple[Step, ...]]:
    """Return the files by name, including the one with the steps, and the steps."""
    # The diagnosis as if this configuration were installed and in enforce mode.
    acting = replace(choice.config, controller=replace(choice.config.controller, mode="enforce"))
    diagnosis = diagnose(replace(seen, config=acting, config_there=True, config_error=""))
    written = {
        CONFIG: _config(seen, choice),
        CLUSTER: _cluster(node_groups(seen, choice.partitions)),
        UNIT: _unit(choice),
        SLURM_CONF: _lines_for(seen.slurm_conf, diagnosis),
        PLUGSTACK: _packaged(PLUGSTACK),
        JOB_SUBMIT: _job_submit(choice),
        NUDGE: _packaged(NUDGE),
    }
    beside = f"{seen.slurm_conf_folder}/cgroup.conf"
    if any(line.file == beside for line in diagnosis.lines.values()):
        written[CGROUP_CONF] = _lines_for(beside, diagnosis)
    steps = tuple(_steps(seen, choice, shlex.quote(folder.rstrip("/")), CGROUP_CONF in written))
    return written | {STEPS: "\n".join(step_lines(steps)) + "\n"}, steps


def _config(seen: Seen, choice: Choice) -> str:
    thresholds, state_dir = choice.config.policy.thresholds_gpu_s, choice.state_dir
    stay = thresholds == DEFAULT.policy.thresholds_gpu_s
    said: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = {
        ("manage", "partitions"): (toml(choice.partitions), tuple(_about(seen, choice))),
        ("policy", "thresholds_gpu_s"): ("" if stay else toml(thresholds), (choice.because,)),
        ("controller", "mode"): (
            toml("shadow"),
            ("It begins in shadow mode: it decides and records, and writes nothing to Slurm.",),
        ),
        ("controller", "state_dir"): (
            "" if state_dir == DEFAULT_STATE_DIR else toml(state_dir),
            (),
        ),
    }
    cluster = seen.settings.text("ClusterName") if seen.settings else ""
    head = f"# For cluster {printable(cluster)}, by tiresias-slurm init."
    return "\n".join([head, *example_lines(said)]) + "\n"


def _about(seen: Seen, choice: Choice) -> Iterator[str]:
    """Describe these partitions, and say which others are left out."""
    for partition in seen.partitions or ():
        name = printable(partition.name)
        if partition.name in choice.partitions:
            nodes = ", ".join(
                f"{group.nodes} x {group.gpus} {printable(group.gpu_type) or 'of no type'}"
                for group in node_groups(seen, (partition.name,))
            )
            yield f"{name}: {seen.gpus_of(partition)} GPUs ({nodes})."
        else:
            why = "was not asked for" if seen.gpus_of(partition) else "has no GPUs"
            yield f"Left out, because it {why}: {name}."


def _cluster(groups: Sequence[NodeGroup]) -> str:
    lines = ["# The nodes with GPUs, as `tiresias-slurm simulate --cluster` and `tune` read them."]
    for group in groups:
        lines += ["", "[[group]]", f"nodes = {group.nodes}", f"gpus = {group.gpus}"]
        lines += [f"type = {toml(group.gpu_type)}"] if group.gpu_type else []
    return "\n".join(lines) + "\n"


def _unit(choice: Choice) -> str:
    values = {
        "ExecStart": f"ExecStart={choice.program} controller --config {INSTALLED_CONFIG}\n",
        "User": f"User={choice.user}\n",
        "Group": f"Group={choice.group}\n",
    }
    if choice.state_dir != DEFAULT_STATE_DIR:
        values["StateDirectory"] = f"ReadWritePaths={choice.state_dir}\n"
        values["StateDirectoryMode"] = ""
    lines = _packaged(UNIT).splitlines(keepends=True)
    return "".join(values.get(line.partition("=")[0], line) for line in lines)


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


def _steps(seen: Seen, choice: Choice, here: str, has_cgroup: bool) -> Iterator[Step]:
    """Yield the next steps, and how to undo them: those of etc/STEPS for this cluster."""
    cgroup = f"cat {here}/{CGROUP_CONF}    # into cgroup.conf of the nodes" if has_cgroup else ""
    values = {
        "here": here,
        "config": INSTALLED_CONFIG,
        "slurm": shlex.quote(seen.slurm_conf_folder),
        "slurm_conf": printable(seen.slurm_conf),
        "cgroup": cgroup,
        **_unit_commands(choice, here),
        **_package_commands(choice),
    }
    for paragraph in _packaged(STEPS).split("\n\n"):
        title, *lines = (line.removeprefix("     ") for line in paragraph.splitlines())
        commands = (Template(line).substitute(values) for line in lines)
        yield Step(title, tuple(line for text in commands for line in text.splitlines()))


def _unit_commands(choice: Choice, here: str) -> Mapping[str, str]:
    """Return the commands to install and to remove the unit; none if the packages' unit is used."""
    default = choice.state_dir == DEFAULT_STATE_DIR
    if default and (choice.program, choice.user) == (PACKAGED, DEFAULT_USER):
        return {"install_unit": "", "remove_unit": ""}
    # systemd creates the default state directory itself.
    owned = f"install -d -o {choice.user} -g {choice.group} -m 755 {choice.state_dir}\n"
    install = f"install -m 644 {here}/{UNIT} /etc/systemd/system/\n"
    reload = "systemctl daemon-reload"
    return {
        "install_unit": install + owned * (not default) + reload,
        "remove_unit": f"rm /etc/systemd/system/{UNIT}\n{reload}",
    }


def _package_commands(choice: Choice) -> Mapping[str, str]:
    """Return how to install the plugin, and the commands to remove it and the program."""
    nodes = "on login and compute nodes"
    if choice.program == PACKAGED:
        install = f"apt-get install ./slurm-tiresias-spank_*.deb  # {nodes}"
        remove = "apt-get purge slurm-tiresias-controller slurm-tiresias slurm-tiresias-job"
        remove += f"\napt-get purge slurm-tiresias-spank  # {nodes}, if installed"
    else:
        install = f"make -C spank install    # in the checkout, {nodes}"
        remove = "rm -r /etc/slurm-tiresias"
        remove += f"\nrm -r /usr/lib/slurm-tiresias    # {nodes}, if the plugin is there"
    return {"install_plugin": install, "remove_program": remove}


def step_lines(steps: Sequence[Step]) -> Iterator[str]:
    """Yield the steps as lines, never wrapped, since they are meant to be copied."""
    for number, step in enumerate(steps, start=1):
        if number > 1:
            yield ""
        yield f"{number}. {step.title}"
        yield from (f"     {command}" for command in step.commands)
