"""Windows of time that end now."""

from __future__ import annotations

from typing import Final

CLOCKS_DIFFER_S: Final = 60.0
"""A time may seem to lie this far in the future because clocks differ."""


def is_recent(at_s: float, now_s: float, window_s: float) -> bool:
    """Whether a time is in the window that ends now.

    A time in the future was recorded while the clock was ahead: how long ago that was is unknown,
    so it is not recent.
    """
    return now_s - window_s < at_s <= now_s + CLOCKS_DIFFER_S
