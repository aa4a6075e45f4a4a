"""Every decision has a text."""

from __future__ import annotations

import pytest

from slurm_tiresias.explanation.reasons import (
    PROTECTION_TEXTS,
    REASON_TEXTS,
    protection_text,
    reason_text,
)
from slurm_tiresias.model import Protection, Reason


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_its_text(reason: Reason) -> None:
    text = REASON_TEXTS[reason]
    assert text.short and len(text.short) <= 20
    assert all(sentence.endswith(".") for sentence in (text.means, text.ends))


@pytest.mark.parametrize("protection", Protection)
def test_every_protection_has_its_text(protection: Protection) -> None:
    text = PROTECTION_TEXTS[protection]
    assert text.short and text.because and not text.because.endswith(".")


def test_an_unknown_code_of_a_newer_controller_is_shown_as_is() -> None:
    assert reason_text("sent-to-mars").short == "sent-to-mars"
    assert protection_text("too-precious").short == "too-precious"
