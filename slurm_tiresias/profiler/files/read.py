"""Detect a file's format and read its tensors."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from slurm_tiresias.profiler.files import safetensors, torch_zip
from slurm_tiresias.profiler.files.tensor import ModelFileError, StoredTensor, Unreadable

START_BYTES = 512
_ZIP = b"PK\x03\x04"
_OTHERS: Mapping[str, tuple[int, bytes]] = {
    "a PyTorch checkpoint of before release 1.6": (
        0,
        b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.",
    ),
    "a tar archive": (257, b"ustar"),
    "a GGUF file": (0, b"GGUF"),
    "an HDF5 file": (0, b"\x89HDF\r\n"),
    "a bare pickle": (0, b"\x80"),
}
"""Other common formats: the offset of their signature, and the signature."""

Reader = Callable[[BinaryIO, int], Iterable[StoredTensor]]


def read(path: Path) -> tuple[StoredTensor, ...]:
    """Return the tensors of a safetensors file or a PyTorch checkpoint.

    Nothing in the file is executed, and sizes that it merely claims cost neither time nor memory.
    Raises ``ModelFileError``.
    """
    with _opened(path) as (stream, file_bytes):
        start = stream.read(START_BYTES)
        stream.seek(0)
        try:
            tensors = tuple(_reader(start, file_bytes)(stream, file_bytes))
        except Unreadable as error:
            why = "it is empty" if not file_bytes else error
            raise ModelFileError(
                f"{path} cannot be read as a model: {why}",
                "Name a safetensors file or a PyTorch checkpoint",
            ) from error
    if not any(tensor.size_bytes for tensor in tensors):
        raise ModelFileError(f"{path} holds no tensors", "Name a file with a model's weights")
    return tensors


def _reader(start: bytes, file_bytes: int) -> Reader:
    if start.startswith(_ZIP):
        return torch_zip.tensors_in
    if safetensors.looks_like_it(start, file_bytes):
        return safetensors.tensors_in
    for kind, (at, mark) in _OTHERS.items():
        if start[at:].startswith(mark):
            raise Unreadable(f"it is {kind}; save its weights anew with torch.save or safetensors")
    raise Unreadable("it is none of the known formats")


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """Open a file and yield it with its size, without waiting for anything that blocks (a pipe)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ModelFileError(f"{path} cannot be opened: {why}", "Name a readable file") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise ModelFileError(f"{path} is not a file", "Name a file with a model's weights")
    with os.fdopen(descriptor, "rb") as stream:
        yield stream, status.st_size
