"""Files that are written in one step: nobody ever meets half of one, and none is left behind."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def write_in_one_step(
    path: Path, content: bytes, mode: int, *, group_of_folder: bool = False
) -> None:
    """Put this in the place of what was there before; raises ``OSError``.

    The draft lies in the same folder under a name of its own, which one writer at a time may use.
    """
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    try:
        _write_new(draft, content, mode, group_of_folder)
        draft.rename(path)
    except OSError:
        with suppress(OSError):
            draft.unlink()
        raise


def _write_new(path: Path, content: bytes, mode: int, group_of_folder: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        if group_of_folder:
            os.fchown(descriptor, -1, path.parent.stat().st_gid)
        # Now, and not when it is made: that would go through the umask.
        os.fchmod(descriptor, mode)
        stream.write(content)
