"""Write files atomically: a reader sees the old content or the new, and no draft is left behind."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def write_atomically(
    path: Path, content: bytes, mode: int, *, group_of_folder: bool = False
) -> None:
    """Replace the content of a file; raises ``OSError``.

    The draft lies in the same folder under a fixed name, so only one process may write a file.
    """
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(draft, flags, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            if group_of_folder:
                os.fchown(descriptor, -1, path.parent.stat().st_gid)
            # os.open would apply the umask to the mode.
            os.fchmod(descriptor, mode)
            stream.write(content)
        draft.rename(path)
    except OSError:
        with suppress(OSError):
            draft.unlink()
        raise
