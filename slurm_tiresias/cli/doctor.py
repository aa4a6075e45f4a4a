"""``tiresias-slurm doctor``: check this Slurm, and print the configuration lines to change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import click

from slurm_tiresias.cli.options import config_option, config_path, json_option
from slurm_tiresias.cli.screen import Screen, show_or_json
from slurm_tiresias.doctor.diagnosis import Diagnosis, diagnose
from slurm_tiresias.doctor.finding import Finding, Severity
from slurm_tiresias.doctor.look import look
from slurm_tiresias.doctor.seen import Seen
from slurm_tiresias.status.shadow_comparison import SHADOW
from slurm_tiresias.text import cells, count, pad, printable

SCHEMA = 1
WARNINGS, ERRORS = 12, 13
"""Exit codes for monitoring, by the worst finding."""

LOOKS = {
    Severity.OK: "good",
    Severity.NOTE: "other",
    Severity.WARNING: "note",
    Severity.ERROR: "bad",
}
WORST_FIRST = tuple(reversed(Severity))
AFTERWARDS = (
    "Then: scontrol reconfigure, or restart slurmctld if PriorityType or another plugin changes. "
    "Call the doctor again."
)
IN_SHADOW_MODE = "Shadow mode needs none of these changes. Make them before the controller acts."


@click.command()
@click.option("-q", "--quiet", is_flag=True, help="Show only warnings and errors.")
@json_option
@config_option
def doctor(quiet: bool, as_json: bool) -> None:
    """Check this Slurm: what is right, what is wrong, why it matters, and what to change.

    Checks slurm.conf, slurmctld's settings, the nodes and the controller's files. Changes nothing,
    and needs neither a controller nor a tiresias.toml.

    \b
    Exit codes: 0 no problem (there may be notes), 12 a warning, 13 an error.
    """
    seen = look(config_path())
    diagnosis = diagnose(seen)
    least = Severity.WARNING if quiet else Severity.OK
    show_or_json(
        as_json,
        lambda: as_object(seen, diagnosis),
        lambda screen: report(seen, diagnosis, screen, least),
    )
    code = {Severity.ERROR: ERRORS, Severity.WARNING: WARNINGS}.get(diagnosis.worst, 0)
    click.get_current_context().exit(code)


def as_object(seen: Seen, diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the diagnosis for ``--json``. Fields are added, never changed."""
    return {
        "schema": SCHEMA,
        "worst": diagnosis.worst.value,
        "slurm_version": None if seen.release is None else list(seen.release),
        "slurm_conf": seen.slurm_conf,
        "config_file": seen.config_file,
        "findings": [
            {
                "name": finding.name,
                "severity": finding.severity.value,
                "seen": finding.seen,
                "why": finding.why,
                "write": [asdict(line) for line in diagnosis.lines_of(finding)],
                "do": list(finding.do),
            }
            for finding in diagnosis.findings
        ],
        "write": [asdict(line) for line in diagnosis.lines.values()],
        "not_checked": list(diagnosis.unchecked),
        "not_seen": list(seen.not_seen),
    }


def report(
    seen: Seen, diagnosis: Diagnosis, screen: Screen, least: Severity = Severity.OK
) -> Iterator[str]:
    """Yield the diagnosis for people: the worst findings first, then one line per passed check."""
    order = list(Severity)
    for severity in WORST_FIRST:
        if order.index(severity) < order.index(least):
            break
        found = [each for each in diagnosis.findings if each.severity is severity]
        if severity is Severity.OK:
            yield from _right(found, screen)
        else:
            for finding in found:
                yield from _wrong(finding, diagnosis, screen)
    for sentence in seen.not_seen:
        yield from screen.prose(printable(f"not seen: {sentence}"), indent="")
    if diagnosis.unchecked:
        yield from screen.prose(f"not checked: {', '.join(diagnosis.unchecked)}", indent="")
    if seen.not_seen or diagnosis.unchecked:
        yield ""
    yield from screen.prose(_sum(diagnosis), indent="")
    if any(diagnosis.lines_of(finding) for finding in diagnosis.findings):
        yield from screen.prose(AFTERWARDS, indent="")
        if seen.config.controller.mode == SHADOW and not diagnosis.count(Severity.ERROR):
            yield from screen.prose(IN_SHADOW_MODE, indent="")


def _wrong(finding: Finding, diagnosis: Diagnosis, screen: Screen) -> Iterator[str]:
    word = screen.style(finding.severity.value, LOOKS[finding.severity])
    yield f"{word}  {screen.style(finding.name, 'title')}"
    yield from screen.prose(printable(f"{_sentence(finding.seen)} {finding.why}"))
    if finding.do:
        yield "  do:"
        yield from (screen.style(f"    {printable(each)}", "title") for each in finding.do)
    for line in diagnosis.lines_of(finding):
        where = f"write into {line.file}" + (f", {line.place}" if line.place else "")
        yield from screen.prose(printable(f"{where}:"))
        # Never wrapped, since it is meant to be copied.
        yield screen.style(f"    {printable(line.line)}", "title")
    yield ""


def _sentence(text: str) -> str:
    """Return the text as a sentence: add a full stop, capitalize unless it begins with a name."""
    word = text.partition(" ")[0]
    plain = word.isalpha() and word.islower() and word != "slurmctld"
    return f"{text[:1].upper()}{text[1:]}." if plain else f"{text}."


def _right(found: Sequence[Finding], screen: Screen) -> Iterator[str]:
    width = max((cells(finding.name) for finding in found), default=0)
    behind = Screen(None if screen.width is None else max(20, screen.width - width - 6))
    for finding in found:
        word = screen.style(Severity.OK.value, LOOKS[Severity.OK])
        first, *rest = behind.prose(printable(finding.seen), indent="")
        yield f"{word}  {pad(finding.name, width)}  {first}"
        yield from (" " * (width + 6) + line for line in rest)
    if found:
        yield ""


def _sum(diagnosis: Diagnosis) -> str:
    """Return how many findings there are of each severity, the worst first."""
    counts = [(Severity.ERROR, "error"), (Severity.WARNING, "warning"), (Severity.NOTE, "note")]
    said = [
        count(number, noun) for severity, noun in counts if (number := diagnosis.count(severity))
    ]
    return ", ".join([*said, f"{diagnosis.count(Severity.OK)} right"]) + "."
