"""What users see of the published state if Slurm keeps jobs private."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_tiresias import json_codec
from slurm_tiresias.model import EventRecord
from slurm_tiresias.status import published, server
from slurm_tiresias.status.ask import SOCKET_NAME, answer_of
from slurm_tiresias.status.privacy import Views, seen_by
from slurm_tiresias.status.published import (
    FILE_NAME,
    VIEW,
    Blocker,
    PublishedHold,
    PublishedNode,
    PublishedState,
)
from slurm_tiresias.status.server import serving
from tests import other_user
from tests.cli.states import running, state, waiting
from tests.other_user import as_root, folder_for_all

STATE = state(
    waiting("1", user="nobody", name="mine", blockers=(Blocker("2", "near-or-higher-tier", None),)),
    running("2", user="alice", name="secret"),
    events=(
        EventRecord(1.0, "preempted", "1", "2", "restart 1"),
        EventRecord(2.0, "demoted", "2", "", "from tier 0 to tier 1"),
    ),
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A state directory that other users may read."""
    with folder_for_all() as path:
        yield path


def read_by_nobody(folder: Path) -> str:
    imports = "from slurm_tiresias import json_codec; from slurm_tiresias.status import published"
    query = "json_codec.dumps(published.read(Path(sys.argv[1]))).decode()"
    return other_user.asked_by_nobody(imports, query, folder)


def test_a_user_sees_own_jobs_with_their_events_and_all_sums() -> None:
    seen = seen_by(STATE, "nobody")
    assert [job.job_id for job in seen.jobs] == ["1"]
    assert [event.kind for event in seen.events] == ["preempted"]
    assert (seen.gpus, seen.tiers, seen.only_of) == (STATE.gpus, STATE.tiers, "nobody")


def test_a_node_shows_others_jobs_as_a_sum_and_a_blocker_shows_no_time() -> None:
    held = (
        PublishedHold("1", 1, 0),
        PublishedHold("2", 2, 1),
        PublishedHold("3", 1, 0),
        PublishedHold("4", 3, None),
    )
    node = PublishedNode("n1", 8, True, "MIXED", held)
    blockers = (Blocker("2", "min-run", 99.0), Blocker("5", "min-run", 98.0))
    jobs = [waiting("1", user="nobody", blockers=blockers), running("5", user="nobody")]
    seen = seen_by(state(*jobs, nodes=(node,)), "nobody")
    assert seen.nodes[0].held == (held[0], PublishedHold("", 6, None))
    assert [blocker.until_s for blocker in seen.jobs[0].blockers] == [None, 98.0]
    assert seen_by(state(nodes=(node,)), "").nodes[0].held == (PublishedHold("", 7, None),)


def test_event_texts_about_other_users_jobs_are_hidden() -> None:
    happened = EventRecord(1.0, "preempted", "2", "1", "restart 7")
    seen = seen_by(replace(STATE, events=(happened,)), "nobody")
    assert seen.events == (replace(happened, text=""),)


def test_every_user_sees_events_of_the_controller() -> None:
    paused = EventRecord(1.0, "paused", "", "", "by root (uid 0)")
    assert seen_by(replace(STATE, events=(paused,)), "nobody").events == (paused,)


def test_a_user_without_a_name_sees_no_job() -> None:
    nameless = state(waiting("1", user=""))
    assert seen_by(nameless, "").jobs == ()


def test_text_from_other_users_is_hidden_from_a_user() -> None:
    assert b"secret" not in json_codec.dumps(seen_by(STATE, "nobody"))
    assert b"alice" not in json_codec.dumps(seen_by(STATE, "nobody"))


@as_root
def test_the_kernel_identifies_readers_of_a_private_state(folder: Path) -> None:
    published.write(STATE, folder, private=True)
    assert (folder / FILE_NAME).stat().st_mode & 0o777 == 0o600
    with serving(folder, {VIEW: Views(STATE).service}):
        assert '"mine"' in read_by_nobody(folder)
        assert "secret" not in read_by_nobody(folder)
        assert _asked(folder) == STATE
    assert not (folder / SOCKET_NAME).exists()
    assert "No controller answers" in read_by_nobody(folder)


@as_root
def test_a_world_readable_state_is_read_from_its_file(folder: Path) -> None:
    published.write(STATE, folder)
    assert "secret" in read_by_nobody(folder)


def test_a_client_that_does_not_read_its_answer_delays_others_only_briefly(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "PATIENCE_S", 0.1)
    many = state(*(waiting(str(number), name="x" * 200) for number in range(2000)))
    views = {VIEW: Views(many).service}
    with serving(folder, views), _connected(folder) as silent, _connected(folder) as unread:
        unread.sendall(b"view\n")
        assert silent.fileno() >= 0
        assert len(_asked(folder).jobs) == 2000


def test_the_next_state_is_served_once_it_is_shown(folder: Path) -> None:
    shown = Views(STATE)
    with serving(folder, {VIEW: shown.service}):
        assert len(_asked(folder).jobs) == 2
        shown.show(state(waiting("3")))
        assert [job.job_id for job in _asked(folder).jobs] == ["3"]


def _connected(folder: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(str(folder / SOCKET_NAME))
    return connection


def _asked(folder: Path) -> PublishedState:
    """Return what the present user sees over the socket."""
    elsewhere = folder / "asked"
    elsewhere.mkdir(exist_ok=True)
    (elsewhere / FILE_NAME).write_bytes(answer_of(folder, VIEW))
    return published.read(elsewhere)
