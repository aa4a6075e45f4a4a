"""A pytest plugin: print a table of skipped tests at the end, one line per reason."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

HEAD = ("tests", "reason", "for example")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped:
        terminalreporter.section("skipped")
        for line in table((report.nodeid, _reason(report)) for report in skipped):
            terminalreporter.write_line(line)


def table(skipped: Iterable[tuple[str, str]]) -> list[str]:
    """Return the lines for these tests and their reasons, the most frequent reason first."""
    by_reason: dict[str, list[str]] = {}
    for test, reason in sorted(skipped):
        by_reason.setdefault(reason, []).append(test)
    rows = [(str(len(tests)), reason, tests[0]) for reason, tests in by_reason.items()]
    rows.sort(key=lambda row: (-int(row[0]), row[1]))
    widths = [max(len(row[column]) for row in (HEAD, *rows)) for column in (0, 1)]
    return [
        f"{count:>{widths[0]}}  {reason:{widths[1]}}  {test}"
        for count, reason, test in (HEAD, *rows)
    ]


def _reason(report: pytest.TestReport) -> str:
    """Return the reason given to the mark or call of ``skip``, for which pytest stores the place as
    well."""
    told = report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longreprtext
    return " ".join(told.removeprefix("Skipped: ").split())
