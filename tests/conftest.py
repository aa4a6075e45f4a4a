"""Settings for all tests."""

from __future__ import annotations

import os
import signal

from hypothesis import settings

# On a build server the same examples every time: what chance finds is found at the desk.
settings.register_profile("desk", deadline=None)
settings.register_profile("server", deadline=None, derandomize=True)
settings.load_profile("server" if os.environ.get("CI") else "desk")

# A shell that runs the tests in the background makes them, and all they start, deaf to Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
