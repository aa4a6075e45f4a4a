"""What bash, zsh and fish load to complete a command line, as files.

python3 -m scripts.tools.packages.completion FOLDER
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from click.shell_completion import get_completion_class

from slurm_tiresias.cli.main import cli
from slurm_tiresias.cli.options import PROGRAM

VARIABLE = f"_{PROGRAM}_COMPLETE".replace("-", "_").upper()
"""The environment variable by which click knows that it is asked for completions."""

_REGISTERS = re.compile(r"^compdef (\S+) \S+;?\n*\Z", re.MULTILINE)
"""The last line of a script for zsh that is to be read when the shell starts, not at a TAB."""

FILES = {"bash": PROGRAM, "zsh": f"_{PROGRAM}", "fish": f"{PROGRAM}.fish"}
"""The name under which each shell looks for it."""


def scripts() -> Iterator[tuple[str, str]]:
    """The file name and the text for each shell."""
    for shell, name in FILES.items():
        kind = get_completion_class(shell)
        assert kind is not None
        # Without the check of this machine's bash, which is not where the file is used.
        wanted = kind(cli, {}, PROGRAM, VARIABLE)
        yield name, at_once(wanted.source_template % wanted.source_vars())


def at_once(script: str) -> str:
    """A script of an older click, with which the first TAB would only load it, completes then."""
    if "loadautofunc" in script:
        return script
    return _REGISTERS.sub(r'\1 "$@"\n', script)


def main() -> None:
    """Write the files into the folder that the command line names."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in scripts():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
