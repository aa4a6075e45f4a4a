"""The file that tells the nodes which programs already have a profile.

It is in the same folder as the files that the nodes leave for the controller. The plugin
(spank/known.c) compares whole lines with what it expects for a job, so names are quoted to contain
no blanks.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from slurm_tiresias.atomic_write import write_atomically
from slurm_tiresias.profiler.models import SKEWS
from slurm_tiresias.profiler.profile import BUILT_IN, MODEL, Key, Profile
from slurm_tiresias.warn_once import WarnOnce

FILE_NAME = "known"
FIRST_LINE = "tiresias-known 1\n"
MOST_BYTES = 4 << 20
"""The plugin does not read a longer file."""


def text_of(profiles: Mapping[Key, Profile]) -> str:
    """Return the file's text. If it would be too long, the oldest profiles are left out: jobs of
    these programs are measured again."""
    ordered = sorted(profiles.values(), key=lambda profile: (profile.measured, -profile.noted_s))
    lines: list[str] = []
    room_bytes = MOST_BYTES - len(FIRST_LINE)
    for profile in ordered:
        line = _line(profile.key)
        room_bytes -= len(line)
        if room_bytes < 0:
            break
        lines.append(line)
    return FIRST_LINE + "".join(sorted(lines))


def _line(key: Key) -> str:
    """Return ``KIND NAME USER``; without USER if the profile counts for all users."""
    kind = BUILT_IN if key.kind == MODEL and not key.user and key.name in SKEWS else key.kind
    names = (quote(name, safe="+", errors="replace") for name in (key.name, key.user) if name)
    return " ".join([kind, *names]) + "\n"


class KnownFile:
    """The index file: its wanted content, and whether that is written. Without a folder, no file.

    A failure to write is logged once; the nodes then keep using the previous content.
    """

    def __init__(self, folder: str) -> None:
        self._path = Path(folder) / FILE_NAME if folder else None
        self._text = ""
        self._written = False
        self._warning = WarnOnce("the nodes cannot be told which programs have a profile")

    def tell(self, profiles: Mapping[Key, Profile]) -> None:
        """Set the content for the next ``write``."""
        text = text_of(profiles) if self._path else ""
        if text != self._text:
            self._text = text
            self._written = False

    def write(self) -> None:
        """Write the file if it is missing or out of date."""
        try:
            if self._path and not (self._written and self._path.exists()):
                write_atomically(self._path, self._text.encode(), 0o644)
                self._written = True
        except OSError as error:
            self._warning.warn(error)
        else:
            self._warning.clear()
