"""Generate the completion scripts for bash, zsh and fish.

python3 -m scripts.tools.packages.completion FOLDER
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from click.shell_completion import get_completion_class

from scripts.tools.packages.commands import write_files
from slurm_tiresias.cli.main import cli
from slurm_tiresias.cli.options import PROGRAM

VARIABLE = f"_{PROGRAM}_COMPLETE".replace("-", "_").upper()
"""The environment variable by which click recognizes a completion request."""

_REGISTERS = re.compile(r"^compdef (\S+) \S+;?\n*\Z", re.MULTILINE)
"""The last line of a zsh script that is meant to be sourced at start, not autoloaded at TAB."""

FILES = {"bash": PROGRAM, "zsh": f"_{PROGRAM}", "fish": f"{PROGRAM}.fish"}
"""The file name under which each shell looks for the script."""


def scripts() -> Iterator[tuple[str, str]]:
    """Yield the file name and the text for each shell."""
    for shell, name in FILES.items():
        kind = get_completion_class(shell)
        assert kind is not None
        # Skip click's check of this machine's bash, because the file will be used elsewhere.
        wanted = kind(cli, {}, PROGRAM, VARIABLE)
        yield name, at_once(wanted.source_template % wanted.source_vars())


def at_once(script: str) -> str:
    """Make an older click's zsh script complete at the first TAB, which would only load it."""
    if "loadautofunc" in script:
        return script
    return _REGISTERS.sub(r'\1 "$@"\n', script)


if __name__ == "__main__":
    write_files(scripts())
