"""Settings for all tests."""

from __future__ import annotations

import os

from hypothesis import settings

# On a build server the same examples every time: what chance finds is found at the desk.
settings.register_profile("desk", deadline=None)
settings.register_profile("server", deadline=None, derandomize=True)
settings.load_profile("server" if os.environ.get("CI") else "desk")
