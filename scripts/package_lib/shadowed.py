"""The configuration that a package installs: the example, in shadow mode.

python3 -m scripts.package_lib.shadowed EXAMPLE FILE
"""

from __future__ import annotations

import sys
from pathlib import Path

from slurm_tiresias.cli.config import toml
from slurm_tiresias.config import ControllerConfig

MODE = f"#mode = {toml(ControllerConfig().mode)}"


def shadowed(example: str) -> str:
    """The same file with one setting taken in: whoever starts the service writes nothing yet."""
    before, found, after = example.partition(f"\n{MODE}\n")
    if not found or MODE in after:
        raise ValueError(f"the example does not have the line {MODE!r} once")
    return f'{before}\nmode = "shadow"\n{after}'


def main() -> None:
    """Write the second file of the command line from the first."""
    example, file = map(Path, sys.argv[1:])
    file.write_text(shadowed(example.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
