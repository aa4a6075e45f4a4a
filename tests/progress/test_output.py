"""Progress from a program's output, and output that is not progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_tiresias.job.record import Record, decode, encode
from slurm_tiresias.model import ProgressSource
from slurm_tiresias.progress.output import FILE_BYTES, OutputProgress
from slurm_tiresias.progress.output_lines import counts_in
from slurm_tiresias.progress.reported_run import ReportedRun
from tests.progress.screen import LOOK_EVERY_S, START_S, Line, looks, slot

EPOCHS, STEPS = 6, 100
LENGTH_S = 1.0 * EPOCHS * STEPS


def bar(description: str, step: int, total: int) -> str:
    """A progress bar like tqdm's."""
    drawn = "█" * (10 * step // total)
    share = f"{100 * step // total:3d}%|{drawn:10}|"
    return f"\r{description}{share} {step}/{total} [00:12<01:30, 9.7it/s]"


def epochs_and_steps() -> Iterator[tuple[float, int, int]]:
    """When each step of each epoch ends, at one step per second; step 0 is the beginning."""
    for epoch in range(EPOCHS):
        for step in range(STEPS + 1):
            yield float(epoch * STEPS + step), epoch, step


def keras() -> Iterator[Line]:
    for at_s, epoch, step in epochs_and_steps():
        if step == 0:
            yield at_s, f"Epoch {epoch + 1}/{EPOCHS}\n"
        else:
            yield (
                at_s,
                f"\r\x1b[1m{step:>3}/{STEPS}\x1b[0m \x1b[32m━━━━━━\x1b[0m\x1b[37m━━━━━━━━\x1b[0m "
                f"\x1b[1m5s\x1b[0m 42ms/step - accuracy: 0.91{step} - loss: 0.31{step}",
            )


def keras_2() -> Iterator[Line]:
    for at_s, epoch, step in epochs_and_steps():
        if step == 0:
            yield at_s, f"Epoch {epoch + 1}/{EPOCHS}\n"
        else:
            yield at_s, f"\r{step:>3}/{STEPS} [==>......] - ETA: 1:02 - loss: 0.1{step}"


def nested_bars() -> Iterator[Line]:
    for at_s, epoch, step in epochs_and_steps():
        if step == 0:
            yield at_s, bar("", epoch, EPOCHS)
        yield at_s, bar("", step, STEPS)
    yield LENGTH_S, bar("", EPOCHS, EPOCHS)


def bars_under_a_heading() -> Iterator[Line]:
    for at_s, epoch, step in epochs_and_steps():
        if step == 0:
            yield at_s, f"Epoch {epoch + 1}/{EPOCHS}\n"
        yield at_s, bar("", step, STEPS)


def bars_that_name_the_epoch() -> Iterator[Line]:
    for at_s, epoch, step in epochs_and_steps():
        yield at_s, bar(f"Epoch {epoch + 1}/{EPOCHS}: ", step, STEPS)


def one_line_a_step() -> Iterator[Line]:
    for at_s, epoch, step in epochs_and_steps():
        if step:
            yield at_s, f"Epoch [{epoch + 1}/{EPOCHS}], Step [{step}/{STEPS}], Loss: 0.2{step}\n"


def bars_then_a_line() -> Iterator[Line]:
    for at_s, epoch, step in epochs_and_steps():
        yield at_s, bar("", step, STEPS)
        if step == STEPS:
            yield at_s, f"Epoch {epoch + 1}/{EPOCHS} loss 0.3\n"


def epochs_from_zero() -> Iterator[Line]:
    """Like the tutorials of PyTorch, which count up to one less than the total."""
    for at_s, epoch, step in epochs_and_steps():
        if step == 0:
            yield at_s, f"Epoch {epoch}/{EPOCHS - 1}\n----------\n"
        yield at_s, bar("", step, STEPS)


def believed(lines: Iterator[Line]) -> list[tuple[float, Record]]:
    return [(at_s, record) for at_s, record in looks(lines) if record]


@pytest.mark.parametrize(
    "program",
    [keras, keras_2, nested_bars, bars_under_a_heading, bars_that_name_the_epoch, one_line_a_step],
)
def test_epochs_and_their_steps_form_one_count(program: Callable[[], Iterator[Line]]) -> None:
    records = believed(program())
    assert records[0][0] <= STEPS + 2 * LOOK_EVERY_S
    for at_s, record in records:
        assert record.total == EPOCHS * STEPS
        assert abs(record.step - min(at_s, LENGTH_S)) <= 2
        assert record.at_s == pytest.approx(START_S + min(at_s, LENGTH_S), abs=2)
        assert record.first_step <= record.step


def test_epochs_counted_from_zero_are_not_overestimated() -> None:
    for at_s, record in believed(epochs_from_zero()):
        assert abs(record.step - min(at_s, LENGTH_S)) <= 2
        assert record.total in ((EPOCHS - 1) * STEPS, EPOCHS * STEPS)


def test_an_unnamed_bar_no_longer_counts_once_it_restarts() -> None:
    """In the first epoch it looks like a progress bar of the whole training."""
    lines = ((at_s, bar("", step, STEPS)) for at_s, _, step in epochs_and_steps())
    records = believed(lines)
    assert records
    assert max(at_s for at_s, _ in records) <= STEPS + LOOK_EVERY_S


def test_bars_count_as_parts_once_an_epoch_is_printed_after_each() -> None:
    for at_s, record in believed(bars_then_a_line()):
        if at_s > STEPS + LOOK_EVERY_S:
            assert record.total == EPOCHS * STEPS
            assert abs(record.step - min(at_s, LENGTH_S)) <= 2


OF_EPOCHS_UNKNOWN: dict[str, Callable[[int, int], str]] = {
    "Lightning": lambda epoch, step: bar(f"Epoch {epoch}: ", step, STEPS),
    "fairseq": lambda epoch, step: f"epoch {epoch:03}:  {step:>4} / {STEPS} loss=9.1, ppl=6.2\n",
    "mmengine": lambda epoch, step: f"Epoch(train)  [{epoch + 1}][{step}/{STEPS}]  lr: 1.0e-02\n",
    "ImageNet": lambda epoch, step: f"Epoch: [{epoch}][{step:>5}/{STEPS}]\tTime  0.310 ( 0.402)\n",
    "MNIST": lambda epoch, step: f"Train Epoch: {epoch} [{step}/{STEPS} (0%)]\tLoss: 0.5\n",
}


@pytest.mark.parametrize("framework", OF_EPOCHS_UNKNOWN)
def test_without_the_number_of_epochs_there_is_no_progress(framework: str) -> None:
    line = OF_EPOCHS_UNKNOWN[framework]
    assert believed((at_s, line(epoch, step)) for at_s, epoch, step in epochs_and_steps()) == []


PLAIN: dict[str, Callable[[int], str]] = {
    "tqdm": lambda step: bar("", step, 500),
    "tqdm with a name": lambda step: bar(f"loss: 0.{step}: ", step, 500),
    "Megatron": lambda step: (
        f" [2026-11-23 10:00:0{step % 10}] iteration {step:>8}/{500:>8} | consumed samples: 960 |\n"
    ),
    "step": lambda step: f"step {step}/500 loss 0.{step}\n",
    "of": lambda step: f"INFO:root:Iter {step} of 500, lr 1e-0{step % 9}\n",
    "brackets": lambda step: f"2026-11-23 10:00:01,123 INFO [{step}/500] loss=0.3\n",
    "percent": lambda step: f"Progress: {step // 5}%\n",
    "mmengine by iterations": lambda step: f"Iter(train) [{step:>4}/500]  lr: 1.0e-02  eta: 0:03\n",
    "unit behind": lambda step: f"finished {step}/500 steps\n",
    "words behind": lambda step: f"[rank 0] Training step {step}/500 (12.3 samples/s)\n",
}


@pytest.mark.parametrize("framework", PLAIN)
def test_one_count_of_all_steps_is_accepted(framework: str) -> None:
    records = believed((float(step), PLAIN[framework](step)) for step in range(501))
    assert records[0][0] <= 60
    for at_s, record in records:
        assert record.total in (500, 100)
        assert record.step / record.total == pytest.approx(at_s / 500, abs=0.021)


NO_PROGRESS = [
    "{n}/30 10:00:01 epoch begins",
    "11/{n}/2026 loaded",
    "loss {n}/40",
    "/data/{n}/40",
    "GPU memory {n}/80 MiB",
    "{n}/40 nodes are ready",
    "[rank {n}/40] hello",
    "version {n}.1/40",
    "HTTP/1.1 {n}/40",
    "Loading checkpoint shards:  50%|█████     | {n}/40 [00:12<01:30, 9.7it/s]",
    "Validation DataLoader 0:  50%|█████     | {n}/40 [00:12<01:30, 9.7it/s]",
    "Map (num_proc=4):  50%|█████     | {n}/40 [00:12<01:30, 9.7 examples/s]",
    "model.bin:  50%|█████     | {n}/40 [00:12<01:30, 9.7MB/s]",
    "model.bin:  {n}%|█████     | {n}.2M/440M [00:12<01:30, 9.7MB/s]",
    "{n}it [00:12, 9.7it/s]",
    "accuracy {n}%",
    "GPU utilization during training {n}%",
    "Test step {n}/40",
    "[{n}/40] Building CUDA object layer_norm.cu.o",
    "[{n}/40] /usr/bin/c++ -O2 -c layer_norm.cpp",
    "test [{n}/40]",
]


@pytest.mark.parametrize("line", NO_PROGRESS)
def test_output_that_only_resembles_progress_is_not_accepted(line: str) -> None:
    assert believed((10.0 * n, line.replace("{n}", str(n)) + "\n") for n in range(1, 30)) == []


def test_evaluations_inside_change_nothing() -> None:
    def lines() -> Iterator[Line]:
        at_s = 0.0
        for step in range(501):
            yield at_s, bar("", step, 500)
            at_s += 1
            for batch in range(51 if step % 100 == 99 else 0):
                yield at_s, bar("", batch, 50)
                at_s += 1

    records = believed(lines())
    assert {record.total for _, record in records} == {500}
    steps = [record.step for _, record in records]
    assert steps == sorted(steps)
    assert len(records) > 60


def test_an_outer_bar_that_has_not_moved_holds_back_inner_ones() -> None:
    lines = [(0.0, bar("", 0, 90)), *((float(step), bar("", step, 5000)) for step in range(900))]
    assert believed(iter(lines)) == []


def test_counts_before_the_training_are_not_its_progress() -> None:
    before = [(float(step), bar("Shuffling", step, 100)) for step in range(101)]
    training = [(200.0 + step, bar("", step, 500)) for step in range(400)]
    records = believed(iter([*before, *training]))
    assert all(record.total == 500 for at_s, record in records if at_s > 170)
    assert records[-1][1].step == 399


def test_a_restarted_program_restarts_the_progress() -> None:
    first = [(float(step), bar("", step, 500)) for step in range(300)]
    second = [(400.0 + step, bar("", 250 + step, 500)) for step in range(200)]
    records = believed(iter([*first, *second]))
    again = [(at_s, record) for at_s, record in records if at_s >= 405]
    assert again[0][0] >= 400 + 30
    assert again[0][1].first_step >= 250
    assert again[-1][1].step == 449


def test_a_count_that_goes_up_and_down_is_not_accepted() -> None:
    ups_and_downs = ((10.0 * n, f"step {100 + 7 * (n % 3)}/5000\n") for n in range(100))
    assert believed(ups_and_downs) == []


def test_the_bar_of_the_training_counts_as_soon_as_that_of_an_earlier_phase_has_ended() -> None:
    """Both have no name. The first is at its end after 100 seconds."""
    phase = [(float(step), bar("", step, 100)) for step in range(101)]
    training = [(101.0 + 2 * step, bar("", step, 500)) for step in range(501)]
    run = ReportedRun(restarts=0)
    for at_s, record in believed(iter([*phase, *training])):
        run.take(ProgressSource.OUTPUT, record, START_S + at_s, at_s)
        left = run.progress.remaining(record.step)
        if record.total == 100:
            assert at_s <= 140.0
            assert (left is None) == (record.step == 100 or at_s < 40.0)
        elif at_s > 170.0 and record.step < 500:
            assert left is not None
            assert left.likely_s == pytest.approx(1101.0 - at_s, abs=2 * LOOK_EVERY_S)


def test_a_reached_total_is_reported_and_later_dropped() -> None:
    lines = [(float(step), bar("", step, 100)) for step in range(101)]
    records = believed(iter([*lines, (300.0, "saving the model\n")]))
    assert records[-1][1].step == 100
    assert 120 <= records[-1][0] <= 170


def test_a_slot_being_written_keeps_its_previous_value() -> None:
    progress = OutputProgress()
    for step in range(10):
        at_s = START_S + 10 * step
        content = slot(f"step {step}/50".encode(), START_S, at_s, at_s).ljust(FILE_BYTES, b"\0")
        record = progress.update(content, at_s)
    torn = b"".join([content[:4], b"\x07", content[5:]])
    assert record
    assert progress.update(torn, at_s + 10) == record
    assert progress.update(bytes(FILE_BYTES), at_s + 20) is None


@pytest.mark.parametrize("told_s", [0.0, 1.0, START_S - 10**8, START_S + 10**6, 1.8e16])
def test_impossible_times_are_replaced(told_s: float) -> None:
    progress = OutputProgress()
    for step in range(10):
        now_s = START_S + 10 * step
        line = slot(f"step {step}/50".encode(), told_s, told_s, told_s)
        record = progress.update(line.ljust(FILE_BYTES, b"\0"), now_s)
    assert record
    assert (record.step, record.first_step) == (9, 0)
    assert (record.at_s, record.first_s) == (now_s, START_S)


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """Files with slots of any times, whose texts look like progress."""
    numbers = st.integers(0, 10**16)
    few = st.integers(0, 12)
    texts = st.one_of(
        st.binary(max_size=432),
        st.builds("Epoch {}/{}".format, few, few).map(str.encode),
        st.builds("Epoch [{}/{}], Step [{}/{}]".format, few, few, few, few).map(str.encode),
        st.builds("{}%|█| {}/{} [00:01<00:02, 1it/s]".format, few, few, few).map(str.encode),
        st.builds("step {}/{}".format, numbers, numbers).map(str.encode),
        st.builds("epoch {}/{}".format, numbers, numbers).map(str.encode),
    )
    seconds = st.one_of(st.floats(0, 1.8e16), st.floats(START_S - 5, START_S + 500))
    slots = st.builds(slot, texts, seconds, seconds, seconds)
    return b"".join(draw(st.lists(slots, max_size=8))).ljust(FILE_BYTES, b"\0")


@given(st.lists(files(), min_size=1, max_size=30), st.floats(0, 500))
def test_every_record_can_be_sent_whatever_is_read(contents: list[bytes], apart_s: float) -> None:
    progress = OutputProgress()
    for index, content in enumerate(contents):
        record = progress.update(content, START_S + apart_s * index)
        assert record is None or decode(encode(record)) == record


@given(st.lists(st.binary(max_size=FILE_BYTES), max_size=6), st.floats(allow_nan=False))
def test_no_content_raises(contents: list[bytes], now_s: float) -> None:
    progress = OutputProgress()
    for content in contents:
        progress.update(content.ljust(FILE_BYTES, b"\0"), now_s)
        progress.update(content, now_s)


@given(st.one_of(st.binary(max_size=600), st.text(alphabet="0123456789/%|[] epoch", max_size=500)))
def test_no_line_raises(text: bytes | str) -> None:
    for count in counts_in(text if isinstance(text, bytes) else text.encode()):
        assert 0 <= count.step <= count.total


@pytest.mark.parametrize(
    "unit",
    ["1", "1/", "1 /", " ", "e", "epoch ", "1%|", "%|", "[", "━", "(", "1/1 ", "\x1b[", "of "],
)
def test_no_line_takes_long(unit: str) -> None:
    began_s = time.process_time()
    for _ in range(10):
        counts_in((unit * 512).encode()[:512])
    assert time.process_time() - began_s < 0.5


def test_steps_counted_across_epochs_are_not_multiplied_by_them() -> None:
    def lines() -> Iterator[Line]:
        for at_s, epoch, step in epochs_and_steps():
            if step:
                done = epoch * STEPS + step
                yield at_s, f"Epoch [{epoch + 1}/{EPOCHS}], Step [{done}/{EPOCHS * STEPS}]\n"

    for at_s, record in believed(lines()):
        if at_s > STEPS + 5 * LOOK_EVERY_S:
            assert record.total == EPOCHS * STEPS
            assert abs(record.step - min(at_s, LENGTH_S)) <= 2


def test_folds_hold_back_the_epochs_inside() -> None:
    def lines() -> Iterator[Line]:
        for fold in range(5):
            yield fold * LENGTH_S, f"Fold {fold + 1}/5\n"
            yield from ((fold * LENGTH_S + at_s, text) for at_s, text in keras())

    records = believed(lines())
    assert records[0][0] > 3 * LENGTH_S
    assert {record.total for _, record in records} == {5}
