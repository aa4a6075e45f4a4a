"""The tensors of the ten models of the paper's testbed (Table 6, page 500), by construction.

Each network is written as in its publication, in a notation of one word per layer, and its tensors
are derived from that. All have 1001 classes (1000 and one for the background), as in the
benchmarks that the paper trained: with them, model sizes and largest tensors equal those of Table 6
to the printed digit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod

BYTES_PER_FLOAT = 4
CLASSES = 1001
CHANNELS_OF_AN_IMAGE = 3


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of floats. ``trained``: it has a gradient (moving averages have none)."""

    shape: tuple[int, ...]
    trained: bool = True

    @property
    def size_bytes(self) -> int:
        return prod(self.shape) * BYTES_PER_FLOAT


class _Network:
    """Builds a network from the input image to the classes, and records its tensors.

    A layer is a word: ``64@3`` is a convolution to 64 channels with a 3x3 kernel, ``64@1x7`` one
    with an oblong kernel, ``a+b`` two layers in parallel, and ``pool`` keeps the channels.
    """

    def __init__(self, after_convolution: Callable[[int], list[Tensor]]) -> None:
        self._after_convolution = after_convolution
        self.channels = CHANNELS_OF_AN_IMAGE
        self.tensors: list[Tensor] = []

    def chain(self, words: str) -> _Network:
        """Add layers in sequence."""
        for word in words.split():
            self.channels = self._beside(word.split("+"), self.channels)
        return self

    def module(self, *branches: str) -> _Network:
        """Add parallel branches with the same input, and concatenate their outputs."""
        entering, leaving = self.channels, 0
        for branch in branches:
            self.channels = entering
            leaving += self.chain(branch).channels
        self.channels = leaving
        return self

    def dense(self, *widths: int) -> tuple[Tensor, ...]:
        """Add fully connected layers at the end; return all tensors."""
        for width in widths:
            self.tensors += [Tensor((self.channels, width)), Tensor((width,))]
            self.channels = width
        return tuple(self.tensors)

    def _beside(self, words: Sequence[str], entering: int) -> int:
        return sum(self._layer(word, entering) for word in words)

    def _layer(self, word: str, entering: int) -> int:
        if word == "pool":
            return entering
        channels, kernel = word.split("@")
        height, _, width = kernel.partition("x")
        self.tensors.append(Tensor((int(height), int(width or height), entering, int(channels))))
        self.tensors += self._after_convolution(int(channels))
        return int(channels)


def _bias(channels: int) -> list[Tensor]:
    return [Tensor((channels,))]


def _normalized(channels: int) -> list[Tensor]:
    """Batch normalization without a scale, as in the later Inception networks."""
    average = Tensor((channels,), trained=False)
    return [Tensor((channels,)), Tensor((channels,)), average, average]


def _normalized_unscaled(channels: int) -> list[Tensor]:
    """Batch normalization without a scale, as the later Inception networks have it."""
    return _normalized(channels)[1:]


def _vgg(*convolutions_of_each_block: int) -> tuple[Tensor, ...]:
    """Simonyan and Zisserman, 2014, Table 1; a 224x224 image is reduced to 7x7."""
    network = _Network(_bias)
    blocks = zip((64, 128, 256, 512, 512), convolutions_of_each_block, strict=True)
    for channels, count in blocks:
        network.chain(f"{channels}@3 " * count)
    network.channels *= 7 * 7
    return network.dense(4096, 4096, CLASSES)


def _alexnet() -> tuple[Tensor, ...]:
    """Krizhevsky, 2014 ("One weird trick"), the one-column network; 6x6 before the dense layers."""
    network = _Network(_bias).chain("64@11 192@5 384@3 384@3 256@3")
    network.channels *= 6 * 6
    return network.dense(4096, 4096, CLASSES)


def _resnet(*units_of_each_block: int) -> tuple[Tensor, ...]:
    """He et al., 2015, Table 1: bottlenecks; the first of each block has its own shortcut."""
    network = _Network(_normalized).chain("64@7")
    for inner, count in zip((64, 128, 256, 512), units_of_each_block, strict=True):
        bottleneck = f"{inner}@1 {inner}@3 {4 * inner}@1"
        for number in range(count):
            entering = network.channels
            network.chain(bottleneck)
            if number == 0:
                leaving, network.channels = network.channels, entering
                network.chain(f"{leaving}@1")
    return network.dense(CLASSES)


def _googlenet() -> tuple[Tensor, ...]:
    """Szegedy et al., 2014, Table 1, without the auxiliary classifiers."""
    network = _Network(_bias).chain("64@7 64@1 192@3")
    for one, before_three, three, before_five, five, pooled in (
        (64, 96, 128, 16, 32, 32),
        (128, 128, 192, 32, 96, 64),
        (192, 96, 208, 16, 48, 64),
        (160, 112, 224, 24, 64, 64),
        (128, 128, 256, 24, 64, 64),
        (112, 144, 288, 32, 64, 64),
        (256, 160, 320, 32, 128, 128),
        (256, 160, 320, 32, 128, 128),
        (384, 192, 384, 48, 128, 128),
    ):
        network.module(
            f"{one}@1",
            f"{before_three}@1 {three}@3",
            f"{before_five}@1 {five}@5",
            f"pool {pooled}@1",
        )
    return network.dense(CLASSES)


def _inception3() -> tuple[Tensor, ...]:
    """Szegedy et al., 2015, Table 1 and Figs. 5 to 7, without the auxiliary classifier."""
    network = _Network(_normalized_unscaled).chain("32@3 32@3 64@3 80@1 192@3")
    for pooled in (32, 64, 64):
        network.module("64@1", "48@1 64@5", "64@1 96@3 96@3", f"pool {pooled}@1")
    network.module("384@3", "64@1 96@3 96@3", "pool")
    for inner in (128, 160, 160, 192):
        network.module(
            "192@1",
            f"{inner}@1 {inner}@1x7 192@7x1",
            f"{inner}@1 {inner}@7x1 {inner}@1x7 {inner}@7x1 192@1x7",
            "pool 192@1",
        )
    network.module("192@1 320@3", "192@1 192@1x7 192@7x1 192@3", "pool")
    for _ in range(2):
        network.module(
            "320@1", "384@1 384@1x3+384@3x1", "448@1 384@3 384@1x3+384@3x1", "pool 192@1"
        )
    return network.dense(CLASSES)


def _inception4() -> tuple[Tensor, ...]:
    """Szegedy et al., 2016, Figs. 3 to 9."""
    network = _Network(_normalized_unscaled).chain("32@3 32@3 64@3")
    network.module("pool", "96@3").module("64@1 96@3", "64@1 64@1x7 64@7x1 96@3")
    network.module("192@3", "pool")
    for _ in range(4):
        network.module("96@1", "64@1 96@3", "64@1 96@3 96@3", "pool 96@1")
    network.module("384@3", "192@1 224@3 256@3", "pool")
    for _ in range(7):
        network.module(
            "384@1",
            "192@1 224@1x7 256@7x1",
            "192@1 192@7x1 224@1x7 224@7x1 256@1x7",
            "pool 128@1",
        )
    network.module("192@1 192@3", "256@1 256@1x7 320@7x1 320@3", "pool")
    for _ in range(3):
        network.module(
            "256@1",
            "384@1 256@1x3+256@3x1",
            "384@1 448@3x1 512@1x3 256@1x3+256@3x1",
            "pool 256@1",
        )
    return network.dense(CLASSES)


_BUILT: Mapping[str, Callable[[], tuple[Tensor, ...]]] = {
    "vgg19": lambda: _vgg(2, 2, 4, 4, 4),
    "vgg16": lambda: _vgg(2, 2, 3, 3, 3),
    "vgg11": lambda: _vgg(1, 1, 2, 2, 2),
    "alexnet": _alexnet,
    "resnet152": lambda: _resnet(3, 8, 36, 3),
    "resnet101": lambda: _resnet(3, 4, 23, 3),
    "resnet50": lambda: _resnet(3, 4, 6, 3),
    "inception4": _inception4,
    "inception3": _inception3,
    "googlenet": _googlenet,
}

NAMES = tuple(_BUILT)
"""The ten models, in the order of Table 6."""


@cache
def tensors_of(name: str) -> tuple[Tensor, ...]:
    """Return the tensors of one of ``NAMES``, from the image to the classes."""
    return _BUILT[name]()


def gradient_sizes(name: str) -> list[int]:
    """Return the bytes of each gradient exchanged in training one of ``NAMES``, in layer order."""
    return [tensor.size_bytes for tensor in tensors_of(name) if tensor.trained]


def tensor_sizes(name: str) -> Iterator[int]:
    """Yield the bytes of each tensor of one of ``NAMES``."""
    return (tensor.size_bytes for tensor in tensors_of(name))
