"""An old primary that went on: what it alone has is named message by message, nothing else is."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omq
from omq.base.errors import Exit
from tests.process import instance as world
from tests.process.instance import MANAGER, WRITER
from tests.process.processes import WAIT_S, start_program
from tests.process.test_standby import OMQ, Pair, client


@pytest.fixture
def pair(omq_instance: world.Instance, tmp_path: Path) -> Iterator[Pair]:
    omq_instance.start(MANAGER, WRITER)
    omq_instance.ready()
    made = Pair(omq_instance, tmp_path / "standby")
    yield made
    made.end()


class Incomplete:
    """Equal to a last line that says that it is not all."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, dict) and other["complete"] is False and bool(other["why"])

    __hash__ = None  # type: ignore[assignment]


ANY_LAST = Incomplete()


def at_primary(pair: Pair, *words: str, root: Path | None = None
               ) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*OMQ, "standby", *words, "--spool", str(root or pair.primary.root),
                           "--conf",
                           str(pair.primary.conf)], capture_output=True, text=True,
                          timeout=WAIT_S, check=False)


def report(pair: Pair, since: int, root: Path | None = None
           ) -> tuple[dict[str, list[str]], Any, int]:
    """State -> ids; the last line; the exit code."""
    done = at_primary(pair, "aside", "--since", str(since), "--json", root=root)
    *lines, last = map(json.loads, done.stdout.splitlines())
    found: dict[str, list[str]] = {}
    for each in lines:
        found.setdefault(each["state"], []).append(each["id"])
    return found, last, done.returncode


def test_what_an_old_primary_alone_has_is_named(pair: Pair) -> None:
    before = pair.primary.paths.uuid.read_bytes()
    with client(pair) as c:
        kept = [str(c.put("A", b"kept %d" % i)) for i in range(3)]
        moved = str(c.put("B", b"moved"))
        pair.make()
        follower = pair.follow()
        c.put("C", b"the last that both have")
        pair.caught_up()
        follower.send_signal(signal.SIGTERM)
        assert follower.wait(WAIT_S) == 0
        with c.reader("A", batch=1) as reader:
            (message,) = reader.next(timeout_s=5)
            message.done()
        with c.reader("B", batch=1) as reader:
            (message,) = reader.next(timeout_s=5)
            message.move("C")
        lost = [str(c.put("A", b"lost %d" % i)) for i in range(2)]
        c.put("C", b"volatile", persistent=False)
        gone = str(c.put("B", b"put and finished"))
        with c.reader("B", batch=1) as reader:
            (message,) = reader.next(timeout_s=5)
            message.done()
        with c.reader("A", batch=9) as reader:
            assert len(reader.next(timeout_s=5)) == 4
    pair.primary.kill(MANAGER, WRITER)
    refused = at_primary(pair, "aside", "--since", "5")
    assert refused.returncode == Exit.USAGE and "omq standby demote" in refused.stderr
    assert at_primary(pair, "demote").returncode == 0
    refused = at_primary(pair, "aside")
    assert refused.returncode == Exit.USAGE and "omq standby status" in refused.stderr
    pair.primary.root.rename(pair.primary.root.with_name("gone"))
    assert pair.run("promote").returncode == 0
    pair.primary.root.with_name("gone").rename(pair.primary.root)
    (promotion,) = pair.status()["promotions"]
    assert (promotion["term"], promotion["member"]) == (1, "b")
    found, last, code = report(pair, promotion["lsn"])
    assert found.pop("changed")[0] == moved
    assert found == {"lost": lost, "again": [kept[0]], "finished": [gone]}
    assert last["complete"] and code == Exit.NO
    assert report(pair, last["last_lsn"])[0] == {} and report(pair, last["last_lsn"])[2] == 0
    with_damage = pair.primary.root.with_name("copy")
    shutil.copytree(pair.primary.root, with_damage, ignore=lambda folder, names: [
        each for each in names if (Path(folder) / each).is_socket()])
    (journal,) = (with_damage / "journal").glob("0*.jnl")
    whole = journal.read_bytes()
    journal.write_bytes(whole[:8192] + bytes([whole[8192] ^ 1]) + whole[8193:])
    assert report(pair, promotion["lsn"], with_damage)[1:] == (ANY_LAST, Exit.DATA)
    journal.unlink()
    done = at_primary(pair, "aside", "--since", str(promotion["lsn"]), root=with_damage)
    assert done.returncode not in (0, Exit.NO), "a spool without a journal has not nothing to tell"
    pair.primary.paths.uuid.write_bytes(before)
    assert pair.bodies()[:3] == [b"kept 0", b"kept 1", b"kept 2"]


def test_what_is_lost_is_put_again_once(omq_instance: world.Instance, tmp_path: Path) -> None:
    """Killed in the middle and repeated; and where a queue remembers no ids."""
    omq_instance.queues(world.QUEUES.replace("[A]\n", "[A]\ndedupe_s = 3600\n"))
    omq_instance.start(MANAGER, WRITER)
    omq_instance.ready()
    pair = Pair(omq_instance, tmp_path / "standby")
    before = pair.primary.paths.uuid.read_bytes()
    with client(pair) as c:
        pair.make()
        follower = pair.follow()
        c.put("C", b"the last that both have")
        pair.caught_up()
        follower.send_signal(signal.SIGTERM)
        assert follower.wait(WAIT_S) == 0
        lost = [str(c.put("A", b"first", properties={"n": 1}, priority=7, group_id=b"g")),
                str(c.put("A", b"x" * 300_000)),  # in a container
                str(c.put(["A", "B"], b"own", message_id="mine-1")),
                str(c.put("A", b"later", delay_s=3600, expiry_s=7200))]
        due, ends = time.time() + 3600, time.time() + 7200
        forgetful = str(c.put("B", b"no ids are remembered there"))
    pair.primary.kill(MANAGER, WRITER)
    assert at_primary(pair, "demote").returncode == 0
    gone = pair.primary.root.with_name("gone")
    pair.primary.root.rename(gone)
    assert pair.run("promote").returncode == 0
    (promotion,) = pair.status()["promotions"]
    words = ("put-again", "--from", str(gone), "--since", str(promotion["lsn"]), "--json")
    refused = pair.run(*words)
    assert refused.returncode == Exit.UNAVAILABLE, refused.stderr  # no manager runs there
    child = start_program(MANAGER, ["--spool", str(pair.root), "--conf", str(pair.primary.conf)],
                          output=pair.log)
    try:
        with omq.connect(pair.root, name="judge", timeout_s=WAIT_S) as c:
            for wrong, why in ((("put-again",), "--from DIR"),
                               (("put-again", "--from", str(pair.root), "--since", "5"),
                                "is not a former primary")):
                done = pair.run(*wrong)
                assert done.returncode == Exit.USAGE and why in done.stderr, done.stderr
            killed = pair.run(*words, fault="put_again.after_put:kill:2")
            assert killed.returncode == -signal.SIGKILL, killed.stderr
            assert len(list(c.browse("A"))) == 2
            for _ in range(2):
                done = pair.run(*words)
                assert done.returncode == Exit.NO, done.stderr
                *lines, last = map(json.loads, done.stdout.splitlines())
                assert [each["state"] for each in lines] == [
                    "put", "put", "put", "put", "refused"], done.stdout
                assert lines[-1]["id"] == forgetful and "B" in lines[-1]["queues"]
                assert (last["lost"], last["refused"], last["complete"]) == (5, 1, True)
            rows = list(c.browse("A"))
            assert [row.body for row in rows] == [b"first", b"x" * 300_000, b"own", b"later"]
            assert [row.message_id for row in rows] == lost
            assert (rows[0].priority, rows[0].properties, rows[0].group_id) == (7, {"n": 1}, "g")
            assert rows[-1].state.name == "DEFERRED"
            assert abs(rows[-1].due_ns / 1e9 - due) < 60
            assert abs(rows[-1].expiry_ns / 1e9 - ends) < 60
            assert [row.body for row in c.browse("B")] == [b"own"]
    finally:
        child.signal(signal.SIGTERM)
        assert child.wait() == 0, pair.log.read_text()
        pair.end()
        gone.rename(pair.primary.root)
        pair.primary.paths.uuid.write_bytes(before)
