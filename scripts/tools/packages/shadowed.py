"""The configuration that a package installs: the example, in shadow mode.

python3 -m scripts.tools.packages.shadowed FILE
"""

from __future__ import annotations

import sys
from pathlib import Path

from slurm_tiresias.cli.config import example_lines, toml

WHY = "The package begins in shadow mode: starting the service writes nothing to Slurm."


def shadowed() -> str:
    """The example with one setting of its own."""
    return "\n".join(example_lines({("controller", "mode"): (toml("shadow"), [WHY])})) + "\n"


def main() -> None:
    """Write the file that the command line names."""
    Path(sys.argv[1]).write_text(shadowed(), encoding="utf-8")


if __name__ == "__main__":
    main()
