"""Models' files: those of real libraries are read, and malicious ones do no harm.

The files in ``recorded`` were written by PyTorch 2.15 and safetensors.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_tiresias.profiler.files import pickles, safetensors
from slurm_tiresias.profiler.files.read import read
from slurm_tiresias.profiler.files.tensor import ModelFileError, StoredTensor, Unreadable

RECORDED = Path(__file__).parent / "recorded"
NETWORK = {
    "conv.weight": 432,
    "conv.bias": 16,
    "norm.weight": 16,
    "norm.bias": 16,
    "norm.running_mean": 16,
    "norm.running_var": 16,
    "norm.num_batches_tracked": 8,
    "fc.weight": 640,
    "fc.bias": 160,
}
MOST_MEMORY_BYTES = 256 << 20


def sizes(tensors: tuple[StoredTensor, ...]) -> dict[str, int]:
    return {tensor.name: tensor.size_bytes for tensor in tensors}


def test_the_weights_of_a_checkpoint_are_found() -> None:
    assert sizes(read(RECORDED / "state_dict.pt")) == NETWORK


def test_a_pickled_module_is_read_without_its_classes() -> None:
    found = [tensor.size_bytes for tensor in read(RECORDED / "module.pt")]
    assert found == list(NETWORK.values())


def test_the_optimizers_tensors_are_left_out_and_tied_ones_count_once() -> None:
    beside = {"tied.a": 240, "view": 48, "half": 14, "scalar": 4}
    expected = {f"model.{name}": size for name, size in {**NETWORK, **beside}.items()}
    assert sizes(read(RECORDED / "checkpoint.pt")) == expected


def test_safetensors_are_read() -> None:
    expected = {"fc.weight": 640, "fc.bias": 80, "step": 8, "empty": 0}
    assert sizes(read(RECORDED / "model.safetensors")) == expected


# Invalid files


def safetensors_file(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(begin: object, end: object, shape: object = (1,), dtype: object = "F32") -> object:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


SAFETENSORS = {
    "cut off": safetensors_file({"a": entry(0, 4)}),
    "outside": safetensors_file({"a": entry(0, 1 << 60, [1 << 58])}, b"1234"),
    "backwards": safetensors_file({"a": entry(4, 0)}, b"1234"),
    "negative": safetensors_file({"a": entry(-4, 0)}, b"1234"),
    "negative shape": safetensors_file({"a": entry(0, 4, [-1, -1])}, b"1234"),
    "NaN": safetensors_file(b'{"a":{"dtype":"F32","shape":[NaN],"data_offsets":[0,4]}}', b"1234"),
    "fraction": safetensors_file({"a": entry(0, 4, [1.0])}, b"1234"),
    "truth": safetensors_file({"a": entry(False, True, [True], "U8")}, b"1"),
    "overlap": safetensors_file({"a": entry(0, 4), "b": entry(2, 6)}, b"123456"),
    "twins": safetensors_file(
        b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
        b'"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}',
        b"12",
    ),
    "disagrees": safetensors_file({"a": entry(0, 4, [2])}, b"1234"),
    "too many dimensions": safetensors_file({"a": entry(0, 4, [1] * 65)}, b"1234"),
    "endless shape": safetensors_file({"a": entry(0, 4, [1 << 40] * 60)}, b"1234"),
    "nested": safetensors_file(b'{"a":' + b"[" * 100_000, b""),
    "long number": safetensors_file(b'{"a":' + b"9" * 100_000 + b"}", b""),
    "list": safetensors_file(b'{"a":[]}'),
    "no text": safetensors_file(b'{"\xff\xfe":1}'),
}


def checkpoint(program: bytes, storages: dict[str, bytes] | None = None, **how: Any) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", **how) as archive:
        archive.writestr("model/data.pkl", program)
        for key, data in (storages or {}).items():
            archive.writestr(f"model/data/{key}", data)
    return content.getvalue()


class _Evil:
    def __init__(self, what: Callable[..., object], *arguments: object) -> None:
        self._what, self._arguments = what, arguments

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self._what, self._arguments


def storage_id(kind: bytes, elements: int) -> bytes:
    """The opcodes for a storage ``0`` with this many elements."""
    return (
        b"(X\x07\x00\x00\x00storagectorch\n" + kind + b"\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu"
        b"\x8a\x09" + elements.to_bytes(9, "little", signed=True) + b"tQ"
    )


def one_tensor(elements: int, shape: bytes, kind: bytes = b"FloatStorage") -> bytes:
    return (
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n("
        + storage_id(kind, elements)
        + b"K\x00("
        + shape
        + b"t)\x89Ntq\x00R."
    )


STORED = {"0": b"12345678"}
CHECKPOINTS = {
    "empty archive": b"PK\x05\x06" + bytes(18),
    "no pickle": checkpoint(b".").replace(b"data.pkl", b"date.pkl"),
    "empty pickle": checkpoint(b""),
    "no tensors": checkpoint(pickle.dumps({"a": 1})),
    "cut off": checkpoint(one_tensor(2, b"K\x02"), STORED)[:-30],
    "cut pickle": checkpoint(one_tensor(2, b"K\x02")[:-9], STORED),
    "not a storage": checkpoint(one_tensor(2, b"K\x02")),
    "storage too large": checkpoint(one_tensor(3, b"K\x02"), STORED),
    "storage absurd": checkpoint(one_tensor(1 << 62, b"K\x02"), STORED),
    "storage negative": checkpoint(one_tensor(-2, b"K\x02"), STORED),
    "shape negative": checkpoint(one_tensor(2, b"J\xfe\xff\xff\xff"), STORED),
    "shape absurd": checkpoint(one_tensor(2, b"\x8a\x08" + b"\xff" * 7 + b"\x7f"), STORED),
    "shape a float": checkpoint(one_tensor(2, b"G\x7f\xf8\x00\x00\x00\x00\x00\x00"), STORED),
    "unknown storage": checkpoint(one_tensor(2, b"K\x02", b"OddStorage"), STORED),
    "compressed bomb": checkpoint(bytes(8 << 20), compression=zipfile.ZIP_DEFLATED),
    "bzip2 bomb": checkpoint(bytes(8 << 20), compression=zipfile.ZIP_BZIP2),
    "two pickles": checkpoint(pickle.dumps({}), {"x/data.pkl": b""}),
    "memo bomb": checkpoint(b"\x80\x02]r\xff\xff\xff\xff."),
    "long bytes": checkpoint(b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7fx."),
    "long number": checkpoint(b"\x80\x02\x8b\xff\xff\xff\x7fx."),
    "number in letters": checkpoint(b"L" + b"9" * 100_000 + b"L\n."),
    "nothing on the stack": checkpoint(b"\x80\x02tR0000."),
    "extension": checkpoint(b"\x80\x02\x82\x01."),
    "contains itself": checkpoint(b"\x80\x02]q\x00h\x00a."),
    "deep": checkpoint(b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"."),
}


OTHERS = {
    "empty": b"",
    "text": b"not a model at all",
    "onnx": b"\x08\x0a\x3a\x00",
    "gguf": b"GGUF" + bytes(100),
    "hdf5": b"\x89HDF\r\n\x1a\n" + bytes(100),
    "tar": bytes(257) + b"ustar" + bytes(300),
    "bare pickle": pickle.dumps({"a": 1}),
}


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(content, id=f"{kind}-{what}")
        for kind, files in (
            ("safetensors", SAFETENSORS),
            ("checkpoint", CHECKPOINTS),
            ("other", OTHERS),
        )
        for what, content in files.items()
    ],
)
def test_a_damaged_or_forged_file_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "model"
    file.write_bytes(content)
    with bounded_memory(), pytest.raises(ModelFileError) as refused:
        read(file)
    assert "\n" not in str(refused.value)
    assert refused.value.exit_code == 2


def test_a_checkpoint_older_than_release_1_6_gets_a_clear_error() -> None:
    with pytest.raises(ModelFileError, match=r"before release 1\.6; save its weights anew"):
        read(RECORDED / "legacy.pt")


def test_a_pickle_is_never_executed(tmp_path: Path) -> None:
    harm = tmp_path / "harm"
    program = pickle.dumps([_Evil(os.mkdir, str(harm)), _Evil(eval, "1/0")])
    file = tmp_path / "evil.pt"
    file.write_bytes(checkpoint(program))
    with pytest.raises(ModelFileError, match="holds no tensors"):
        read(file)
    assert not harm.exists()


def test_files_that_are_not_regular_do_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (
        tmp_path / "pipe",
        tmp_path,
        tmp_path / "missing",
        Path("/dev/zero"),
        Path("a\0b"),
    ):
        with pytest.raises(ModelFileError):
            read(path)


def test_a_header_as_large_as_the_file_allows_is_refused_unread(tmp_path: Path) -> None:
    file = tmp_path / "sparse"
    file.write_bytes(safetensors_file(b"{", length=1 << 40))
    os.truncate(file, (1 << 40) + 8)
    with bounded_memory(), pytest.raises(ModelFileError, match="claims"):
        read(file)
    assert safetensors.MOST_HEADER_BYTES < MOST_MEMORY_BYTES


def test_a_zip_directory_as_large_as_the_file_allows_is_refused(tmp_path: Path) -> None:
    size = 3 << 30
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 9, 9, size - 26, 4, 0)
    file = tmp_path / "sparse.pt"
    file.write_bytes(b"PK\x03\x04")
    with file.open("r+b") as stream:
        stream.seek(size - 22)
        stream.write(end)
    with bounded_memory(), pytest.raises(ModelFileError, match="zip archive"):
        read(file)


def test_a_pickle_with_too_many_steps_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "MOST_OPCODES", 1000)
    with pytest.raises(Exception, match="more than 1,000 steps"):
        list(pickles.tensors_in(b"\x80\x02" + b"N0" * 1000 + b"N."))


@pytest.mark.parametrize(
    "name", ["state_dict.pt", "checkpoint.pt", "module.pt", "model.safetensors"]
)
@given(damage=st.data())
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_damaged_model_files_raise_only_the_readers_own_error(
    name: str, damage: st.DataObject, tmp_path: Path
) -> None:
    content = bytearray((RECORDED / name).read_bytes())
    places = st.integers(0, len(content) - 1)
    for at, byte in damage.draw(st.dictionaries(places, st.integers(0, 255), max_size=12)).items():
        content[at] = byte
    file = tmp_path / name
    file.write_bytes(content[: damage.draw(st.integers(0, len(content)) | st.just(len(content)))])
    try:
        tensors = read(file)
    except ModelFileError:
        return
    assert all(tensor.size_bytes >= 0 for tensor in tensors)


def test_a_pickle_whose_text_would_exceed_the_memory_is_refused() -> None:
    """A tuple of two copies of the previous tuple, forty levels deep, instead of a name."""
    doubled = b"".join(b"2\x86" for _ in range(40))
    with pytest.raises(Unreadable, match="damaged"):
        list(pickles.tensors_in(b"\x80\x04)" + doubled + b"2\x93."))


def test_a_key_of_thousands_of_digits_does_not_break_the_reader() -> None:
    assert list(pickles.tensors_in(pickle.dumps({10**5000: [1]}))) == []


@given(program=st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_pickle_program_is_read_or_raises_the_readers_error(program: bytes) -> None:
    try:
        list(pickles.tensors_in(b"\x80\x02" + program))
    except Exception as error:
        assert type(error).__name__ == "Unreadable"


@contextmanager
def bounded_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY_BYTES
    finally:
        tracemalloc.stop()
