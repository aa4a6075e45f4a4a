"""Generate the configuration that a package installs: the example, in shadow mode.

python3 -m scripts.tools.packages.shadowed FILE
"""

from __future__ import annotations

import sys
from pathlib import Path

from slurm_tiresias.cli.config import example_lines, toml

WHY = "The package begins in shadow mode: starting the service writes nothing to Slurm."


def shadowed() -> str:
    """Return the example with the mode set to shadow."""
    return "\n".join(example_lines({("controller", "mode"): (toml("shadow"), [WHY])})) + "\n"


def main() -> None:
    """Write the file given on the command line."""
    Path(sys.argv[1]).write_text(shadowed(), encoding="utf-8")


if __name__ == "__main__":
    main()
