"""One reader under libFuzzer: ``python -m scripts.tools.fuzz.target PROGRAM READER ARGUMENTS``.

``PROGRAM`` starts this module with further arguments, because libFuzzer restarts itself to compare
inputs. It exits through libFuzzer. An exception of the reader that is not one of this program's
errors ends it with a traceback, and the input is saved to a file.
"""

from __future__ import annotations

import json  # noqa: F401
import sys
import tomllib  # noqa: F401

import atheris
import ClusterShell.NodeSet  # noqa: F401

# Only these hooks: the replacements of compiled patterns imported before lack attributes that
# other code needs.
for hook in ("RegEx", "str"):
    atheris.enabled_hooks.add(hook)
with atheris.instrument_imports(include=["slurm_tiresias"]):
    from scripts.testbed.readers import read_or_refused


def main() -> None:
    _, program, name, *arguments = sys.argv
    atheris.Setup([program, *arguments], lambda content: read_or_refused(name, content))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
