"""How the program begins: Ctrl-C ends it quietly from the first moment on, while it loads, too."""

from __future__ import annotations

import sys

from slurm_tiresias.errors import INTERRUPTED


def main() -> None:
    """The entry point."""
    try:
        from slurm_tiresias.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
