"""How long tests wait for what should happen soon. A test that passes does not wait that long."""

from __future__ import annotations

import os

PATIENCE_S = 360.0 if os.environ.get("CI") else 180.0
"""Slurm makes a requeued job wait for two minutes. Build servers may be slow and busy."""
