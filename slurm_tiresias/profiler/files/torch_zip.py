"""PyTorch checkpoints since release 1.6: a zip with a pickle, and one file per storage."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from math import prod
from typing import BinaryIO

from slurm_tiresias.profiler.files import pickles
from slurm_tiresias.profiler.files.tensor import (
    MOST_ELEMENTS,
    StoredTensor,
    Unreadable,
    checked_shape,
)

MOST_PICKLE_BYTES = 32 << 20
MOST_BYTES_AT_ONCE = 16 << 20
"""Larger than the directory of any checkpoint; a forged one may claim any size."""

_PICKLE = "data.pkl"
_OPTIMIZER = ".optim"
"""Prefix of the parts with the optimizer's state, whose tensors are never sent."""


def tensors_in(stream: BinaryIO, file_bytes: int) -> Iterator[StoredTensor]:
    """Yield every tensor of the checkpoint except the optimizer's; raise ``Unreadable``.

    Tensors at the same place in a storage count once.
    """
    try:
        with zipfile.ZipFile(_Bounded(stream)) as archive:
            place, pickle = _pickle_in(archive)
            held = {info.filename: info.file_size for info in archive.infolist()}
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError, NotImplementedError) as error:
        raise Unreadable("its zip archive is cut off or damaged") from error
    except (EOFError, RuntimeError, LookupError, OverflowError) as error:
        raise Unreadable("its zip archive is cut off or damaged") from error
    return _tensors(pickle, place, held, file_bytes)


class _Bounded(io.BufferedReader):
    """A file that refuses to read more than a bounded piece at once."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__(stream)  # type: ignore[arg-type]

    def read(self, size: int | None = -1, /) -> bytes:
        most = MOST_BYTES_AT_ONCE + 1 if size is None or size < 0 else size
        piece = super().read(min(most, MOST_BYTES_AT_ONCE + 1))
        if len(piece) > MOST_BYTES_AT_ONCE:
            raise Unreadable("its zip archive claims a directory of impossible size")
        return piece


def _pickle_in(archive: zipfile.ZipFile) -> tuple[str, bytes]:
    """Return the checkpoint's folder in the archive, and its pickle."""
    found = [
        info
        for info in archive.infolist()
        if info.filename == _PICKLE or info.filename.endswith(f"/{_PICKLE}")
    ]
    if len(found) != 1:
        raise Unreadable("it is a zip archive, but not a checkpoint of PyTorch")
    info = found[0]
    # PyTorch never compresses, so a file in the archive cannot grow while it is read.
    if info.compress_type != zipfile.ZIP_STORED or info.file_size > MOST_PICKLE_BYTES:
        raise Unreadable("its pickle is compressed or too large, unlike those of PyTorch")
    with archive.open(info) as stream:
        return info.filename.removesuffix(_PICKLE), stream.read(MOST_PICKLE_BYTES)


def _tensors(
    pickle: bytes, place: str, held: Mapping[str, int], file_bytes: int
) -> Iterator[StoredTensor]:
    seen: set[tuple[str, int, int]] = set()
    for name, rebuilt in pickles.tensors_in(pickle):
        above = f".{name}".rpartition(".")[0]
        if _OPTIMIZER in above:
            continue
        storage = rebuilt.storage
        stored_bytes = held.get(f"{place}data/{storage.key}", -1)
        if not storage.size_bytes <= stored_bytes <= file_bytes:
            raise Unreadable("a tensor claims more than the file holds")
        shape, offset = checked_shape(rebuilt.shape), rebuilt.offset
        if not isinstance(offset, int) or not 0 <= offset <= MOST_ELEMENTS:
            raise Unreadable("a tensor has no valid offset")
        # A view may repeat its storage, which bounds the bytes that it takes.
        size_bytes = min(prod(shape) * rebuilt.element_bytes, storage.size_bytes)
        where = (storage.key, offset, size_bytes)
        if where not in seen:
            seen.add(where)
            yield StoredTensor(name, shape, size_bytes)
