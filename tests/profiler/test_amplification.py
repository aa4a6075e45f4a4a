"""No small file makes its reader use much memory or time."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from scripts.testbed.patience import PATIENCE_S
from tests.profiler.test_files import checkpoint, one_tensor, safetensors_file

READS = """
import json, sys, time
from pathlib import Path
from slurm_tiresias.profiler.files.read import read
from slurm_tiresias.profiler.files.tensor import ModelFileError

def peak_bytes():
    words = Path("/proc/self/status").read_text().split()
    return int(words[words.index("VmHWM:") + 1]) << 10

before_bytes, began_s = peak_bytes(), time.process_time()
try:
    found = len(read(Path(sys.argv[1])))
except ModelFileError as error:
    found = str(error)
print(json.dumps([peak_bytes() - before_bytes, time.process_time() - began_s, found]))
"""

FILE_BYTES = 400_000
MOST_BYTES_PER_BYTE = 140
"""Below 300 MB for a file of two megabytes."""

MOST_CPU_S = 4.0

REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"
TENSOR = one_tensor(2, b"K\x02").removeprefix(b"\x80\x02").removesuffix(b".")
ARGUMENTS = TENSOR.removeprefix(REBUILD).removesuffix(b"tq\x00R")


def text(content: bytes) -> bytes:
    return b"X" + struct.pack("<I", len(content)) + content


def times(part: bytes, size_bytes: int) -> bytes:
    return part * (size_bytes // len(part))


def tensor_with(offset: bytes = b"K\x00", more: bytes = b"") -> bytes:
    """The call that rebuilds a tensor, and the beginning of its arguments: in the memo at 1 and
    2."""
    return REBUILD + b"q\x01" + ARGUMENTS.replace(b"K\x00(", offset + b"(", 1) + more + b"tq\x02"


DEEP_KEY = b"\x80\x02}" + text(b"." * 1024)
PICKLES: Mapping[str, Callable[[int], bytes]] = {
    "values below a long key": lambda size: DEEP_KEY + b"(" + b"N" * size + b"ls.",
    "lists below a long key": lambda size: DEEP_KEY + b"(" + b"]" * size + b"ls.",
    "wide letters": lambda size: (
        b"\x80\x02}" + text("k\N{GRINNING FACE}".encode() * 200) + b"(" + b"N" * size + b"ls."
    ),
    "arguments of many calls": lambda size: (
        b"\x80\x02(" + b"N" * 500 + b"tq\x000c_\n_\nq\x010(" + times(b"h\x01h\x00R", size) + b"l."
    ),
    "arguments of many objects": lambda size: (
        b"\x80\x02("
        + b"N" * 500
        + b"tq\x000c_\n_\nq\x010("
        + times(b"h\x01h\x00\x81", size)
        + b"l."
    ),
    "dicts": lambda size: b"\x80\x02(" + b"}" * size + b"l.",
    "lists of one": lambda size: b"\x80\x02(" + times(b"]Na", size) + b"l.",
    "lists in lists": lambda size: b"\x80\x02" + b"]" * (size // 2) + b"a" * (size // 2 - 1) + b".",
    "tuples in tuples": lambda size: b"\x80\x02N" + b"\x85" * size + b".",
    "tuples": lambda size: b"\x80\x02(" + times(b"N\x85", size) + b"l.",
    "memo": lambda size: b"\x80\x04]" + b"\x94" * size + b".",
    "lists in the memo": lambda size: b"\x80\x04(" + times(b"]\x94", size) + b"l.",
    "calls without arguments": lambda size: b"\x80\x02(" + times(b"))R", size) + b"l.",
    "names": lambda size: b"\x80\x02(" + times(b"c\n\n", size) + b"l.",
    "states": lambda size: b"\x80\x02]" + times(b"]b", size) + b".",
    "one tensor by many long names": lambda size: (
        b"\x80\x02(" + TENSOR + b"q\x03" + DEEP_KEY[2:] + b"(" + times(b"h\x03", size) + b"lsl."
    ),
    "many arguments of a tensor": lambda size: (
        b"\x80\x02(" + tensor_with(more=b"N" * size) + b"R" + times(b"h\x01h\x02R", size) + b"l."
    ),
    "a long offset": lambda size: (
        b"\x80\x02("
        + tensor_with(b"\x8b" + struct.pack("<i", size // 2) + b"\x7f" * (size // 2))
        + b"R"
        + times(b"h\x01h\x02R", size // 2)
        + b"l."
    ),
    "a long key": lambda size: (
        b"\x80\x02(" + text(b"k" * (size // 2)) + b"q\x00}(" + times(b"h\x00]", size // 2) + b"ul."
    ),
}

FILES: Mapping[str, Callable[[int], bytes]] = {
    **{
        f"checkpoint: {what}": lambda size, program=program: checkpoint(  # type: ignore[misc]
            program(size), {"0": b"12345678"}
        )
        for what, program in PICKLES.items()
    },
    "safetensors: lists": lambda size: safetensors_file(b'{"a":[' + times(b"[],", size) + b"1]}"),
    "safetensors: tables": lambda size: safetensors_file(b'{"a":[' + times(b"{},", size) + b"1]}"),
}


def reading(path: Path) -> tuple[int, float, object]:
    """Return the memory in bytes and the CPU seconds used to read the file, and the tensors
    found."""
    ended = subprocess.run(
        [sys.executable, "-c", READS, path],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    memory_bytes, cpu_s, found = json.loads(ended.stdout)
    return memory_bytes, cpu_s, found


@pytest.mark.parametrize("what", FILES)
def test_reading_any_model_file_takes_bounded_memory_and_time(what: str, tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(FILES[what](FILE_BYTES))
    memory_bytes, cpu_s, _ = reading(path)
    assert memory_bytes < path.stat().st_size * MOST_BYTES_PER_BYTE
    assert cpu_s < MOST_CPU_S


def test_a_checkpoint_of_two_megabytes_takes_less_than_300(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(FILES["checkpoint: values below a long key"](1_900_000))
    memory_bytes, _, found = reading(path)
    assert memory_bytes < 300 << 20
    assert "holds no tensors" in str(found)


def test_tensors_that_share_all_their_arguments_are_still_found(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    program = b"\x80\x02(" + tensor_with() + b"R" + b"h\x01h\x02R" * 5 + b"l."
    path.write_bytes(checkpoint(program, {"0": b"12345678"}))
    assert reading(path)[2] == 1
