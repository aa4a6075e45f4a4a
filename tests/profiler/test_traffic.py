"""Collected traffic files: their content, and what is refused."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.testbed.models import NAMES, gradient_sizes, tensor_sizes
from scripts.testbed.traffic_files import HEADER, START_OF_LISTS, Sizes, rounds_of, traffic_file
from slurm_tiresias.profiler.skew import in_buckets, skew_of
from slurm_tiresias.profiler.traffic import FILE_BYTES, Sent, TrafficFileError, parse, sent_in
from tests.known import known

HEADER_FILE = Path(__file__).parents[2] / "spank/monitor/traffic.h"


def sent(sizes: Sizes) -> Sent:
    return known(sent_in(parse(traffic_file(sizes)).messages))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rounds", [7, 500])
def test_the_skew_of_every_model_is_found_in_its_messages(name: str, rounds: int) -> None:
    """Three tensors of one size are three tensors, not one that was sent three times as often."""
    skew = skew_of(tensor_sizes(name))
    found = sent(rounds_of(list(tensor_sizes(name)), rounds))
    assert skew is not None
    assert found.skew.ratio == pytest.approx(skew.ratio, rel=0.01)
    assert found.rounds == rounds


@pytest.mark.parametrize("name", NAMES)
def test_buckets_are_found_too(name: str) -> None:
    buckets = in_buckets(gradient_sizes(name))
    skew = known(skew_of(buckets))
    assert sent(rounds_of(buckets, 40)).skew.ratio == pytest.approx(skew.ratio)


def test_the_last_iteration_may_be_cut_short() -> None:
    counts = rounds_of(list(tensor_sizes("vgg16")), 30)
    for size in list(counts)[: len(counts) // 2]:
        counts[size] += 1
    assert sent(counts).skew.ratio == pytest.approx(0.743, rel=0.05)


def test_messages_sent_only_at_the_start_do_not_count() -> None:
    counts = rounds_of(list(tensor_sizes("resnet50")), 100)
    counts[250 << 20] = 1
    assert sent(counts).skew.ratio == pytest.approx(0.092, rel=0.02)


def test_small_messages_besides_the_tensors_do_not_count() -> None:
    counts = rounds_of(list(tensor_sizes("vgg16")), 100) | {48: 123_457, 17: 991}
    assert sent(counts).skew.ratio == pytest.approx(0.743, rel=0.01)


def test_more_sizes_than_an_octave_lists_still_count_in_the_total() -> None:
    sizes = [(1 << 20) + number for number in range(50)]
    found = sent(rounds_of(sizes, 20))
    assert found.skew.total_bytes == pytest.approx(sum(sizes), rel=1e-6)
    assert found.skew.pieces == 50


GLOO_ALL_REDUCE = {
    "resnet50": {1048624: 280, 943768: 270, 589872: 240, 262192: 440, 1025072: 80, 524336: 80},
    "vgg16": {1048624: 4560, 943768: 450, 1025072: 160, 589872: 80, 786480: 60, 943752: 50},
}
"""The largest sizes of five rounds in which two processes reduced each tensor with Gloo."""


@pytest.mark.parametrize("name", GLOO_ALL_REDUCE)
def test_tensors_cut_up_by_a_library_give_no_skew_rather_than_a_wrong_one(name: str) -> None:
    assert sent_in(parse(traffic_file(GLOO_ALL_REDUCE[name])).messages) is None


GLOO_SEND = {
    "resnet50": {9437232: 30, 4194352: 50, 2359344: 60, 1048624: 110, 8388656: 10, 8200240: 10},
    "vgg16": {411041840: 10, 67108912: 10, 9437232: 50, 16400432: 10, 2359344: 20, 4718640: 10},
}
"""The same if each tensor was sent to the other process and back."""


@pytest.mark.parametrize(("name", "largest_mb"), [("resnet50", 9.0), ("vgg16", 392.0)])
def test_tensors_that_were_sent_whole_are_recognised(name: str, largest_mb: float) -> None:
    assert sent(GLOO_SEND[name]).skew.largest_bytes / (1 << 20) == pytest.approx(largest_mb, 1e-3)


@pytest.mark.parametrize("sizes", [{}, {4096: 1}, {1 << 30: 2}])
def test_messages_that_do_not_recur_give_no_skew(sizes: Sizes) -> None:
    assert sent_in(parse(traffic_file(sizes)).messages) is None


def test_a_file_of_zeros_is_an_empty_one() -> None:
    traffic = parse(bytes(FILE_BYTES))
    assert sent_in(traffic.messages) is None
    assert sent_in(traffic.collectives) is None


def test_messages_and_collectives_are_separate() -> None:
    traffic = parse(traffic_file({1024: 9}, {2048: 5}))
    assert traffic.messages.listed == {1024: 9}
    assert traffic.collectives.listed == {2048: 5}


def test_counts_in_the_lists_of_threads_are_added() -> None:
    traffic = parse(traffic_file({1024: 9, 5: 1}, {777: 12}, [{1024: 100, 3000: 7}, {1024: 1000}]))
    assert traffic.messages.listed == {5: 1, 1024: 1109, 3000: 7}
    assert traffic.messages.octaves[11].listed == {3000: 7}
    assert traffic.messages.total_bytes == 5 + 1024 * 1109 + 3000 * 7
    assert traffic.collectives.listed == {777: 12}


def test_a_slot_without_a_count_is_ignored() -> None:
    """A task was killed between taking a slot and counting its message."""
    assert parse(traffic_file({1024: 0}, lists=[{512: 0}])).messages.listed == {}
    assert sent({1024: 9, 2048: 0}) == sent({1024: 9})


def changed(at: int, word: int) -> bytes:
    content = bytearray(traffic_file({1024: 9}, lists=[{7: 7}, {1024: 9, 5000: 8}]))
    struct.pack_into("<Q", content, at, word)
    return bytes(content)


OCTAVE_10 = 64 + 10 * 544
LISTS_TAKEN = 64 + 2 * 26112
LIST_1 = START_OF_LISTS + 512


@pytest.mark.parametrize(
    "content",
    [
        b"",
        HEADER,
        traffic_file({1024: 9})[:-1],
        traffic_file({1024: 9}) + b"\0",
        changed(0, 1),
        changed(8, 1 | FILE_BYTES << 32),
        changed(40, 1),
        changed(48, 1),
        changed(START_OF_LISTS - 8, 1),
        changed(FILE_BYTES - 8, 1),
        changed(OCTAVE_10 + 32, 4096),
        changed(OCTAVE_10 + 32, 0),
        changed(OCTAVE_10 + 48, 1024),
        changed(OCTAVE_10, 1),
        changed(OCTAVE_10 + 8, 1),
        changed(OCTAVE_10 + 16, 1),
        changed(OCTAVE_10 + 24, 1),
        changed(OCTAVE_10 + 40, (1 << 64) - 1),
        changed(LISTS_TAKEN, 1),
        changed(LISTS_TAKEN, 65),
        changed(LISTS_TAKEN, (1 << 64) - 1),
        changed(LIST_1, 0),
        changed(LIST_1, 5000),
        changed(LIST_1, 1 << 48),
        changed(LIST_1 + 8, (1 << 64) - 1),
        changed(LIST_1 + 32, 1024),
        changed(LIST_1 + 40, 1),
    ],
)
def test_files_that_the_monitor_cannot_have_written_are_refused(content: bytes) -> None:
    with pytest.raises(TrafficFileError):
        parse(content)


@given(
    st.dictionaries(st.integers(0, FILE_BYTES // 8 - 1), st.integers(0, (1 << 64) - 1), max_size=40)
)
@settings(max_examples=150, deadline=None)
def test_damaged_files_raise_only_the_readers_error(damage: dict[int, int]) -> None:
    content = bytearray(traffic_file({1024: 9, 1 << 20: 30}, {777: 12}, [{1024: 9}, {1025: 99}]))
    for at, word in damage.items():
        struct.pack_into("<Q", content, 8 * at, word)
    try:
        traffic = parse(bytes(content))
    except TrafficFileError:
        return
    for section in (traffic.messages, traffic.collectives):
        found = sent_in(section)
        assert found is None or 0 < found.skew.ratio <= 1


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_the_layout_is_that_of_the_monitor(tmp_path: Path) -> None:
    source = tmp_path / "writes.c"
    source.write_text(
        """
        #include <stdio.h>
        #include "traffic.h"
        static struct traffic_file file;
        int main(void)
        {
            traffic_describe(&file.header);
            file.sections[TRAFFIC_MESSAGES].octaves[10].slots[0] = (struct traffic_slot){1024, 9};
            file.sections[TRAFFIC_COLLECTIVES].octaves[47].unlisted_messages = 3;
            file.sections[TRAFFIC_COLLECTIVES].octaves[47].unlisted_bytes = 5;
            file.sections[TRAFFIC_COLLECTIVES].octaves[47].unlisted_largest_bytes = 1ULL << 47;
            file.lists_taken = TRAFFIC_LISTS;
            file.lists[0].slots[0] = (struct traffic_slot){1024, 90};
            file.lists[TRAFFIC_LISTS - 1].slots[31] = (struct traffic_slot){1, 2};
            return fwrite(&file, sizeof file, 1, stdout) != 1;
        }
        """
    )
    program = tmp_path / "writes"
    sources = [str(source), str(HEADER_FILE.with_suffix(".c"))]
    subprocess.run(["cc", f"-I{HEADER_FILE.parent}", "-o", str(program), *sources], check=True)
    traffic = parse(subprocess.run([program], check=True, capture_output=True).stdout)
    assert traffic.messages.listed == {1: 2, 1024: 99}
    assert traffic.collectives.octaves[47].unlisted_largest_bytes == 1 << 47
    assert traffic.collectives.total_bytes == 5
