"""PyTorch checkpoints since release 1.6: a zip with a pickle, and one file for each storage."""

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
"""More than the directory of any checkpoint needs; a forged one may claim any size."""

_PICKLE = "data.pkl"
_OPTIMIZER = ".optim"
"""Parts whose name begins so hold the optimizer's state, tensors that are never sent."""


def tensors_in(stream: BinaryIO, file_bytes: int) -> Iterator[StoredTensor]:
    """Every tensor of the checkpoint but those of the optimizer; raises ``Unreadable``.

    Tensors that share their place in a storage are one.
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
    """A file that gives out only a bounded piece at once."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__(stream)  # type: ignore[arg-type]

    def read(self, size: int | None = -1, /) -> bytes:
        most = MOST_BYTES_AT_ONCE + 1 if size is None or size < 0 else size
        piece = super().read(min(most, MOST_BYTES_AT_ONCE + 1))
        if len(piece) > MOST_BYTES_AT_ONCE:
            raise Unreadable("its zip archive claims a directory of absurd size")
        return piece


def _pickle_in(archive: zipfile.ZipFile) -> tuple[str, bytes]:
    """Where in the archive the checkpoint stands, and its pickle."""
    found = [
        info
        for info in archive.infolist()
        if info.filename == _PICKLE or info.filename.endswith(f"/{_PICKLE}")
    ]
    if len(found) != 1:
        raise Unreadable("it is a zip archive, but no checkpoint of PyTorch")
    info = found[0]
    # PyTorch stores and never compresses, so nothing here can grow while it is read.
    if info.compress_type != zipfile.ZIP_STORED or info.file_size > MOST_PICKLE_BYTES:
        raise Unreadable("its pickle is compressed or too large, as none of PyTorch's is")
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
            raise Unreadable("a tensor begins nowhere")
        # A view may repeat what it looks at; it takes no more than that.
        size_bytes = min(prod(shape) * rebuilt.element_bytes, storage.size_bytes)
        where = (storage.key, offset, size_bytes)
        if where not in seen:
            seen.add(where)
            yield StoredTensor(name, shape, size_bytes)
