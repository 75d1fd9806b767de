"""An old primary asks the members that it knows before it serves."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from omq.base import events
from omq.base.errors import Exit
from omq.storage.instance_file import Role
from omq.storage.spool import create_spool, open_spool
from tests.process import instance as world
from tests.process.instance import MANAGER, WRITER
from tests.process.processes import WAIT_S, start_program
from tests.process.test_standby import OMQ, Pair, client


class Members(Pair):
    """Both know how the other is reached."""

    def send_of(self, root: Path) -> str:
        return shlex.join([*OMQ, "standby", "send", "--spool", str(root), "--conf",
                           str(self.primary.conf)])

    def knows(self, *ways: str, alone: bool = True) -> None:
        self.primary.settings()
        with open(self.primary.conf / "omq.conf", "a", encoding="utf-8") as conf:
            conf.write(f"\n[standby]\nstandby_members = {', '.join(ways)}\n"
                       f"standby_start_alone = {'yes' if alone else 'no'}\n")

    def says(self, root: Path, **changed: object) -> None:
        path = root / "instance.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changed))

    def refused(self) -> tuple[int, str]:
        """A start of the old primary that ends; its code, and why."""
        code = self.primary.start().wait()
        return code, self.primary.said()


@pytest.fixture
def pair(omq_instance: world.Instance, tmp_path: Path) -> Iterator[Members]:
    omq_instance.start(MANAGER, WRITER)
    omq_instance.ready()
    made = Members(omq_instance, tmp_path / "standby")
    made.knows(made.send_of(omq_instance.root), made.send_of(made.root))
    before = omq_instance.paths.uuid.read_bytes()
    yield made
    made.end()
    made.knows()
    omq_instance.paths.uuid.write_bytes(before)


@contextmanager
def served(pair: Members) -> Iterator[None]:
    """The promoted one runs."""
    child = start_program(MANAGER, ["--spool", str(pair.root), "--conf", str(pair.primary.conf)],
                          output=pair.log)
    try:
        yield
    finally:
        child.signal(signal.SIGTERM)
        assert child.wait() == 0, pair.log.read_text()


def taken_over(pair: Members) -> None:
    """The primary dies, and the standby is promoted."""
    follower = pair.follow()
    pair.caught_up()
    follower.send_signal(signal.SIGTERM)
    assert follower.wait(WAIT_S) == 0
    pair.primary.kill(MANAGER, WRITER)
    pair.primary.root.rename(pair.primary.root.with_name("gone"))
    done = pair.run("promote")
    assert done.returncode == 0, done.stderr
    pair.primary.root.with_name("gone").rename(pair.primary.root)


def test_an_old_primary_does_not_serve_again(pair: Members) -> None:
    """Nobody demoted it, and the new one does not even run."""
    with client(pair) as c:
        c.put("A", b"1")
        pair.make()
    taken_over(pair)
    code, said = pair.refused()
    assert code == Exit.UNAVAILABLE and "is a former primary of its instance" in said, said
    found = open_spool(pair.primary.root).instance
    assert (found.role, found.term, found.member) == (Role.FORMER, 0, "former")
    assert found.primary == pair.send_of(pair.root)
    pair.knows()
    assert pair.refused()[0] == Exit.UNAVAILABLE, "it stands in its spool from now on"
    assert pair.bodies() == [b"1"]


def test_a_primary_that_runs_steps_down_when_a_later_one_starts(pair: Members) -> None:
    pair.make()
    pair.says(pair.root, role="primary", term=1)
    (pair.root / "journal/synced").unlink()
    with served(pair):
        assert pair.primary.children[MANAGER].wait() == 0, pair.primary.said()
    assert open_spool(pair.primary.root).instance.role is Role.FORMER
    assert open_spool(pair.root).instance.role is Role.PRIMARY


def test_who_does_not_answer_is_named_and_may_be_waited_for(pair: Members) -> None:
    pair.make()
    pair.primary.stop()
    pair.knows("false", pair.send_of(pair.root))
    pair.primary.start()
    pair.primary.ready()
    (told,) = pair.primary.events(events.MEMBERS_SILENT.number)
    assert told["members"].startswith("false: "), told
    pair.primary.stop(MANAGER)
    pair.knows("false", pair.send_of(pair.root), alone=False)
    code, said = pair.refused()
    assert code == Exit.TEMPORARY and "may be the primary of a later term than 0: false: " in said
    assert open_spool(pair.primary.root).instance.role is Role.PRIMARY, "it may start later"
    pair.knows(pair.send_of(pair.root), alone=False)
    pair.primary.start()
    pair.primary.ready()
    assert len(pair.primary.events(events.MEMBERS_SILENT.number)) == 1, "the standby has answered"


def test_two_primaries_of_one_term_are_named(pair: Members) -> None:
    pair.make()
    pair.primary.stop()
    pair.says(pair.root, role="primary", term=2)
    pair.says(pair.primary.root, format=2, role="primary", term=2, member="a", primary="")
    code, said = pair.refused()
    assert code == Exit.DATA and "two members are primary of term 2: a, and b at" in said, said


def test_another_instance_stops_nobody_and_is_not_stopped(pair: Members, tmp_path: Path) -> None:
    """An address that is wrong: its answer does not count."""
    other = create_spool(tmp_path / "other").paths
    pair.says(other.root, format=2, role="primary", term=9, member="x", primary="")
    pair.primary.stop()
    pair.knows(pair.send_of(other.root))
    pair.primary.start()
    pair.primary.ready()
    (told,) = pair.primary.events(events.MEMBERS_SILENT.number)
    assert "it refuses: the stream from a standby was abandoned" in told["members"]
    assert open_spool(other.root).instance.role is Role.PRIMARY
    assert open_spool(pair.primary.root).instance.role is Role.PRIMARY


def test_a_former_primary_and_a_standby_serve_nobody(pair: Members, tmp_path: Path) -> None:
    pair.make()
    done = subprocess.run([*OMQ, "standby", "init", "--member", "c", "--spool",
                           str(tmp_path / "c"), "--conf", str(pair.primary.conf), "--",
                           *shlex.split(pair.send_of(pair.root))], capture_output=True, text=True,
                          timeout=WAIT_S, check=False)
    assert done.returncode == Exit.TEMPORARY and "is a standby of its instance" in done.stderr
