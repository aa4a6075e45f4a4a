"""One reader under libFuzzer: ``python -m scripts.tools.fuzz.target PROGRAM READER ARGUMENTS``.

``PROGRAM`` starts just this with further arguments, for libFuzzer starts itself again where it
compares inputs. It ends by libFuzzer's own exit. Whatever the reader raises that is no error of
this program ends it with a traceback, and with the input in a file.
"""

from __future__ import annotations

import json  # noqa: F401
import sys
import tomllib  # noqa: F401

import atheris
import ClusterShell.NodeSet  # noqa: F401

# Of what was imported before, the patterns stay as they are: what stands in for one of the others
# knows no more of ``match`` and its like than the text.
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
