"""Read from a SPANK plugin's file the Slurm release that it was built for.

``SPANK_PLUGIN`` of slurm/spank.h stores SLURM_VERSION_NUMBER in the symbol ``plugin_version``, and
Slurm refuses a plugin built for another major or minor release. The file is parsed, not loaded, so
that no code of the plugin runs in this process.
"""

from __future__ import annotations

import struct
from pathlib import Path

SYMBOL = b"plugin_version"
MOST_BYTES = 50_000_000

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNSYM = 11


def built_for(path: Path) -> tuple[int, int, int] | None:
    """Return the major, minor and micro release; None if the file is no 64-bit Slurm plugin.

    Raises ``OSError``.
    """
    with path.open("rb") as stream:
        image = stream.read(MOST_BYTES)
    try:
        number = _number(image)
    except (struct.error, IndexError, OverflowError, ValueError):
        return None
    return None if number is None else (number >> 16, number >> 8 & 0xFF, number & 0xFF)


def _number(image: bytes) -> int | None:
    if image[:6] != b"\x7fELF\x02\x01":
        return None
    (table,) = struct.unpack_from("<Q", image, 0x28)
    size, count = struct.unpack_from("<HH", image, 0x3A)
    sections = [_SECTION.unpack_from(image, table + number * size) for number in range(count)]
    for section in sections:
        if section[1] == _DYNSYM:
            names = sections[section[6]][4]
            for at in range(section[4], section[4] + section[5], _SYMBOL.size):
                name, _, _, home, address, _ = _SYMBOL.unpack_from(image, at)
                begins = names + name
                if image[begins : image.index(b"\0", begins)] == SYMBOL:
                    # Convert the symbol's address, in section ``home``, to a file offset.
                    at = sections[home][4] + address - sections[home][3]
                    return int(struct.unpack_from("<I", image, at)[0])
    return None
