"""Read the pickle of a PyTorch checkpoint without executing it, which no library but torch does.

fickling and picklescan list what a pickle would call, but not the shapes of its tensors.

A pickle is a program: unpickling imports and calls whatever it names. This reader only steps
through the opcodes and imports and calls nothing. Names stay names. The few calls that rebuild a
tensor are interpreted for its shape; every other call becomes an inert container of its arguments,
which is still searched for tensors.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from slurm_tiresias.profiler.files.tensor import (
    MOST_ELEMENTS,
    MOST_NAME_CHARACTERS,
    MOST_TENSORS,
    Unreadable,
)

MOST_OPCODES = 2_000_000
"""Enough for 60,000 tensors; processing that many takes a few seconds. It also bounds memory: a
step creates at most one value, and puts each existing value in at most one more place.
"""

MOST_CHARACTERS = 16_000_000
"""Bound on the names of all tensors together: each may repeat a long name of its container."""

MOST_ARGUMENTS = 16
"""Bound on the arguments of the call that rebuilds a tensor; PyTorch's has eight."""

MOST_DEPTH = 128
MOST_BITS_TOLD = 64
"""Larger numbers are not printed: Python refuses to format numbers with thousands of digits."""

_BYTES_OF_STORAGE: Mapping[str, int] = {
    **dict.fromkeys(("BoolStorage", "ByteStorage", "CharStorage", "UntypedStorage"), 1),
    **dict.fromkeys(("QInt8Storage", "QUInt8Storage"), 1),
    **dict.fromkeys(("HalfStorage", "BFloat16Storage", "ShortStorage"), 2),
    **dict.fromkeys(("FloatStorage", "IntStorage", "QInt32Storage"), 4),
    **dict.fromkeys(("DoubleStorage", "LongStorage", "ComplexFloatStorage"), 8),
    "ComplexDoubleStorage": 16,
}
_BYTES_OF_TYPE: Mapping[str, int] = {
    **dict.fromkeys(("bool", "uint8", "int8"), 1),
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"), 1),
    **dict.fromkeys(("float16", "bfloat16", "int16", "uint16"), 2),
    **dict.fromkeys(("float32", "int32", "uint32"), 4),
    **dict.fromkeys(("float64", "int64", "uint64", "complex64"), 8),
    "complex128": 16,
}
_REBUILDS_TENSOR = ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3")
_REBUILDS_PARAMETER = ("_rebuild_parameter", "_rebuild_parameter_with_state")


@dataclass(frozen=True, slots=True)
class Storage:
    """A storage that the pickle names: its key in the archive and its size."""

    key: str
    element_bytes: int
    elements: int

    @property
    def size_bytes(self) -> int:
        return self.element_bytes * self.elements


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A tensor as described by the call that rebuilds it, not validated yet."""

    storage: Storage
    offset: object
    shape: tuple[object, ...]
    element_bytes: int


@dataclass(frozen=True, slots=True)
class _Name:
    """A name that the pickle would import."""

    module: str
    name: str


_BY_PLACE = object()
"""The key of an entry that has no key itself."""


class _Heap(list[object]):
    """A dict, a list, or an object's arguments and state: keys and values in turn."""

    __slots__ = ()

    def add(self, value: object, key: object = _BY_PLACE) -> None:
        self.extend((key, value))


class _Mark:
    """The position on the stack where a group of values begins."""


def tensors_in(pickle: bytes) -> Iterator[tuple[str, Rebuilt]]:
    """Yield every tensor that the pickle would rebuild, with its path: ``model.fc.weight``."""
    try:
        whole = _Machine().run(pickle)
    except (ValueError, TypeError, LookupError, OverflowError, MemoryError) as error:
        raise Unreadable("its pickle is damaged") from error
    yield from _found_in(whole)


def _found_in(whole: object) -> Iterator[tuple[str, Rebuilt]]:
    """Search a structure that may share parts or contain itself: open each container once."""
    opened: set[int] = set()
    found = characters = 0
    levels: list[tuple[str, Iterator[tuple[object, object]]]] = [("", iter([("", whole)]))]
    while levels:
        path, entries = levels[-1]
        for key, value in entries:
            if isinstance(value, Rebuilt):
                name = _below(path, key)
                found += 1
                characters += len(name)
                if found > MOST_TENSORS:
                    raise Unreadable(f"it claims more than {MOST_TENSORS:,} tensors")
                if characters > MOST_CHARACTERS:
                    raise Unreadable("the names of its tensors are too long")
                yield name, value
            elif (
                isinstance(value, _Heap | tuple)
                and value
                and id(value) not in opened
                and len(levels) <= MOST_DEPTH
            ):
                opened.add(id(value))
                levels.append((_below(path, key), _entries(value)))
                break
        else:
            levels.pop()


def _entries(container: _Heap | tuple[object, ...]) -> Iterator[tuple[object, object]]:
    if isinstance(container, tuple):
        yield from enumerate(container)
        return
    for at in range(0, len(container), 2):
        key = container[at]
        yield (at // 2 if key is _BY_PLACE else key), container[at + 1]


def _below(path: str, key: object) -> str:
    if key == "":
        return path
    told = isinstance(key, str) or (isinstance(key, int) and key.bit_length() < MOST_BITS_TOLD)
    step = str(key)[:MOST_NAME_CHARACTERS] if told else "?"
    return f"{path}.{step}"[-MOST_NAME_CHARACTERS:] if path else step


class _Machine:
    """A stack machine that handles the opcodes of pickles without their side effects."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self, pickle: bytes) -> object:
        for number, (opcode, argument, _) in enumerate(pickletools.genops(pickle)):
            if number > MOST_OPCODES:
                raise Unreadable(f"its pickle has more than {MOST_OPCODES:,} steps")
            if opcode.name == "STOP":
                return self._stack.pop()
            step = _STEPS.get(opcode.name)
            if step is None:
                raise Unreadable(f"its pickle uses {opcode.name}, which no checkpoint does")
            step(self, argument)
        raise Unreadable("its pickle has no end")

    # The stack and the memo

    def push(self, value: object) -> None:
        self._stack.append(value)

    def push_size_only(self, value: object) -> None:
        """Push a placeholder: bytes and floats say nothing about tensors."""
        self._stack.append(None)

    def mark(self, _: object) -> None:
        self._stack.append(_Mark)

    def pop(self, _: object) -> None:
        self._stack.pop()

    def pop_group(self, _: object = None) -> list[Any]:
        at = len(self._stack) - 1
        while self._stack[at] is not _Mark:
            if at == 0:
                raise ValueError("no mark")
            at -= 1
        group = self._stack[at + 1 :]
        del self._stack[at:]
        return group

    def duplicate(self, _: object) -> None:
        self._stack.append(self._stack[-1])

    def put(self, number: int | None) -> None:
        self._memo[len(self._memo) if number is None else number] = self._stack[-1]

    def get(self, number: int) -> None:
        self._stack.append(self._memo[number])

    # Containers

    def heap(self, _: object) -> None:
        self._stack.append(_Heap())

    def heap_of_group(self, _: object) -> None:
        heap = _Heap()
        for value in self.pop_group():
            heap.add(value)
        self._stack.append(heap)

    def table_of_group(self, _: object) -> None:
        self._stack.append(_Heap(_paired(self.pop_group())))

    def append(self, _: object) -> None:
        value = self._stack.pop()
        self._top_heap().add(value)

    def append_group(self, _: object) -> None:
        group = self.pop_group()
        heap = self._top_heap()
        for value in group:
            heap.add(value)

    def set_item(self, _: object) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._top_heap().add(value, key)

    def set_group(self, _: object) -> None:
        group = self.pop_group()
        self._top_heap().extend(_paired(group))

    def tuple_of_group(self, _: object) -> None:
        self._stack.append(tuple(self.pop_group()))

    def tuple_of_last(self, count: int) -> None:
        if len(self._stack) < count:
            raise ValueError("too few values")
        at = len(self._stack) - count
        self._stack[at:] = [tuple(self._stack[at:])]

    # Names, and calls that are not made

    def name(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self._stack.append(_Name(module, name))

    def name_of_last_two(self, _: object) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        if not (isinstance(name, str) and isinstance(module, str)):
            # Formatting a nested container here could exhaust all memory.
            raise TypeError("not a name")
        self._stack.append(_Name(module, name))

    def call(self, _: object) -> None:
        arguments, called = self._stack.pop(), self._stack.pop()
        self._stack.append(_called(called, arguments if isinstance(arguments, tuple) else ()))

    def call_with_keywords(self, _: object) -> None:
        keywords = self._stack.pop()
        self.call(None)
        if isinstance(self._stack[-1], _Heap):
            self._stack[-1].add(keywords)

    def build(self, _: object) -> None:
        state = self._stack.pop()
        if isinstance(self._stack[-1], _Heap):
            self._stack[-1].add(state, key="")

    def load_persistent(self, _: object) -> None:
        self._stack.append(_storage(self._stack.pop()))

    def _top_heap(self) -> _Heap:
        heap = self._stack[-1]
        if not isinstance(heap, _Heap):
            raise TypeError("not a container")
        return heap


def _paired(values: list[Any]) -> list[Any]:
    if len(values) % 2:
        raise ValueError("a key without a value")
    return values


def _called(called: object, arguments: tuple[Any, ...]) -> object:
    if isinstance(called, _Name) and called.module == "torch._utils":
        if called.name in _REBUILDS_TENSOR:
            return _rebuilt(arguments[:MOST_ARGUMENTS])
        if called.name in _REBUILDS_PARAMETER and arguments:
            return arguments[0]
    heap = _Heap()
    if arguments:
        # Added as one entry: copying the arguments for every call that shares them could use much
        # memory.
        heap.add(arguments, key="")
    return heap


def _rebuilt(arguments: tuple[Any, ...]) -> Rebuilt:
    match arguments:
        case (Storage() as storage, offset, tuple(shape), *rest):
            # The storage gives the type; for an untyped storage, the call names it.
            named = (one.name for one in rest if isinstance(one, _Name) and one.module == "torch")
            sizes = (_BYTES_OF_TYPE[name] for name in named if name in _BYTES_OF_TYPE)
            return Rebuilt(storage, offset, shape, next(sizes, storage.element_bytes))
    raise Unreadable("its pickle rebuilds a tensor from an object that is not a storage")


def _storage(persistent_id: object) -> Storage:
    match persistent_id:
        case _Heap():
            pass
        case ("storage", _Name(name=kind), str(key), _, int(elements), *_) if (
            0 <= elements <= MOST_ELEMENTS and len(key) <= MOST_NAME_CHARACTERS
        ):
            if kind not in _BYTES_OF_STORAGE:
                raise Unreadable("a tensor has an unknown type of storage")
            return Storage(key, _BYTES_OF_STORAGE[kind], elements)
    raise Unreadable("its pickle names a storage in an unknown way")


Step = Callable[[_Machine, Any], None]


def _each(names: str, step: Step) -> dict[str, Step]:
    return dict.fromkeys(names.split(), step)


def _push_constant(value: object) -> Step:
    return lambda machine, _: machine.push(value)


def _no_effect(_machine: _Machine, _argument: object) -> None:
    """Ignore PROTO and FRAME, which describe only the encoding."""


_STEPS: Mapping[str, Step] = {
    **_each("PROTO FRAME", _no_effect),
    **_each("INT BININT BININT1 BININT2 LONG LONG1 LONG4", _Machine.push),
    **_each("UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8", _Machine.push),
    **_each("STRING BINSTRING SHORT_BINSTRING", _Machine.push),
    **_each("BINBYTES SHORT_BINBYTES BINBYTES8 BYTEARRAY8", _Machine.push_size_only),
    **_each("FLOAT BINFLOAT", _Machine.push_size_only),
    "NONE": _push_constant(None),
    "NEWTRUE": _push_constant(True),
    "NEWFALSE": _push_constant(False),
    "EMPTY_TUPLE": _push_constant(()),
    **_each("EMPTY_LIST EMPTY_DICT EMPTY_SET", _Machine.heap),
    **_each("LIST FROZENSET", _Machine.heap_of_group),
    "DICT": _Machine.table_of_group,
    "APPEND": _Machine.append,
    **_each("APPENDS ADDITEMS", _Machine.append_group),
    "SETITEM": _Machine.set_item,
    "SETITEMS": _Machine.set_group,
    "TUPLE": _Machine.tuple_of_group,
    "TUPLE1": lambda machine, _: machine.tuple_of_last(1),
    "TUPLE2": lambda machine, _: machine.tuple_of_last(2),
    "TUPLE3": lambda machine, _: machine.tuple_of_last(3),
    "MARK": _Machine.mark,
    "POP": _Machine.pop,
    "POP_MARK": lambda machine, _: (machine.pop_group(), None)[1],
    "DUP": _Machine.duplicate,
    **_each("PUT BINPUT LONG_BINPUT MEMOIZE", _Machine.put),
    **_each("GET BINGET LONG_BINGET", _Machine.get),
    "GLOBAL": _Machine.name,
    "STACK_GLOBAL": _Machine.name_of_last_two,
    **_each("REDUCE NEWOBJ", _Machine.call),
    "NEWOBJ_EX": _Machine.call_with_keywords,
    "BUILD": _Machine.build,
    "BINPERSID": _Machine.load_persistent,
}
"""What each opcode does to the stack. INST, OBJ, PERSID and extensions occur in no checkpoint."""
