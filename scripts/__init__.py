"""Everything around the package: its demo, its tests' cluster, and the tools of its developers."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The checkout."""
