"""Everything around the package: the demo, the test cluster and the developers' tools."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The root of the checkout."""
