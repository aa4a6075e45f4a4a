"""scripts/dev bare, as far as it can be tested without making a Debian."""

from __future__ import annotations

import pytest

from scripts.tools.bare.main import Result, skipped_in


@pytest.mark.parametrize(
    ("line", "skipped"),
    [
        ("5 passed in 1.02s", "0"),
        ("3 failed, 3489 passed, 78 skipped, 25 errors in 270.41s (0:04:30)", "78"),
        ("1 error in 0.5s", "0"),
        ("== mypy: ok, 37.9 s", ""),
        ("tests  reason  for example", ""),
    ],
)
def test_the_number_of_skipped_tests_is_in_pytests_last_line(line: str, skipped: str) -> None:
    assert skipped_in(line) == skipped


def test_a_result_is_a_row_of_the_table() -> None:
    result = Result("./scripts/test", "ada", 1, 600.4, "7")
    assert result.row() == ["./scripts/test", "ada", "1", "600", "7"]
