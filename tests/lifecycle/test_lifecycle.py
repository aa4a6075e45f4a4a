"""A short run of the random interleavings; ``scripts/dev chaos lifecycle`` goes on for hours."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from scripts.testbed.lifecycle.machine import Lifecycle

EXAMPLES, STEPS = 30, 25
"""Six seconds on one core."""

Lifecycle.TestCase.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=STEPS, suppress_health_check=list(HealthCheck)
)

TestLifecycle = Lifecycle.TestCase
