"""An old primary becomes a standby of the new one in place: what it alone has is set aside, named
and can be read; everything else stays, and it can take over again."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import omq
from omq.base.errors import Exit
from omq.cli import launch
from omq.storage.instance_file import Role
from omq.storage.spool import open_spool
from tests.process import instance as world
from tests.process.instance import MANAGER, QUEUES, WRITER
from tests.process.processes import WAIT_S, start_program
from tests.process.test_standby import OMQ, Pair, client
from tests.waiting import until


@pytest.fixture
def pair(omq_instance: world.Instance, tmp_path: Path) -> Iterator[Pair]:
    """The old primary's checkpoint stays where it is from the fork on: its pool.writer is away."""
    omq_instance.start(MANAGER, WRITER)
    omq_instance.ready()
    made = Pair(omq_instance, tmp_path / "standby")
    before = omq_instance.paths.uuid.read_bytes()
    with client(made) as c:
        c.put("A", b"kept")
        c.put("B", b"finished there")
        made.make()
        yield made
    made.end()
    if omq_instance.paths.uuid.read_bytes() != before:  # what it is now no manager serves
        omq_instance.root.rename(omq_instance.root.with_name("rejoined"))
        subprocess.run(["cp", "-a", tmp_path / "before", omq_instance.root], check=True)


def apart(pair: Pair, tmp_path: Path, *, writer: bool = False) -> None:
    """The standby is promoted with what it has; the old primary goes on for a while, and dies."""
    follower = pair.follow()
    pair.caught_up()
    follower.send_signal(signal.SIGTERM)
    assert follower.wait(WAIT_S) == 0
    if not writer:
        pair.primary.kill(WRITER)
    with client(pair) as c:
        c.put("A", b"lost one")
        c.put("C", b"lost two" * 5000)
        with c.reader("B", batch=1) as reader:
            (message,) = reader.next(timeout_s=5)
            message.done()
    pair.primary.kill(*([MANAGER, WRITER] if writer else [MANAGER]))


def promoted(pair: Pair) -> None:
    pair.primary.root.rename(pair.primary.root.with_name("gone"))
    try:
        done = pair.run("promote")
        assert done.returncode == 0, done.stderr
    finally:
        pair.primary.root.with_name("gone").rename(pair.primary.root)


def at(pair: Pair, root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    own = words.index("--") if "--" in words else len(words)
    return subprocess.run([*OMQ, "standby", *words[:own], "--spool", str(root), "--conf",
                           str(pair.primary.conf), *words[own:]], capture_output=True, text=True,
                          timeout=WAIT_S, check=False)


def to(pair: Pair, root: Path) -> list[str]:
    return [*OMQ, "standby", "send", "--spool", str(root), "--conf", str(pair.primary.conf)]


@contextmanager
def served(pair: Pair, root: Path) -> Iterator[omq.Client]:
    child = start_program(MANAGER, ["--spool", str(root), "--conf", str(pair.primary.conf)],
                          output=pair.log)
    try:
        with omq.connect(root, name="judge", timeout_s=WAIT_S) as c:
            yield c
    finally:
        child.signal(signal.SIGTERM)
        assert child.wait() == 0, pair.log.read_text()


def bodies(c: omq.Client, queue: str) -> list[bytes | None]:
    with c.reader(queue, batch=100) as reader:
        return [each.body for each in reader.next(timeout_s=0)]


def lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(each) for each in done.stdout.splitlines()]


def test_an_old_primary_follows_in_place_and_takes_over_again(pair: Pair, tmp_path: Path) -> None:
    old = pair.primary.root
    apart(pair, tmp_path)
    subprocess.run(["cp", "-a", old, tmp_path / "before"], check=True)
    early = at(pair, old, "rejoin", "--member", "a", "--", *to(pair, pair.root))
    assert early.returncode == Exit.USAGE and "a standby of term 0" in early.stderr
    promoted(pair)
    with served(pair, pair.root) as c:
        c.put("A", b"of the new one")
    done = at(pair, old, "rejoin", "--member", "a", "--", *to(pair, pair.root))
    assert done.returncode == 0, done.stderr
    assert "set aside: 1 again, 2 lost" in done.stdout
    found = open_spool(old).instance
    assert (found.role, found.member, found.primary) == (Role.STANDBY, "a",
                                                         shlex.join(to(pair, pair.root)))
    (kept,) = (old / "aside").iterdir()
    since = kept.name.split("-")[1]
    report = at(pair, kept, "aside", "--since", since, "--json")
    *named, last = lines(report)
    assert sorted(each["state"] for each in named) == ["again", "lost", "lost"] and last["complete"]
    assert launch.run("omqrecover", ["extract", str(kept), "--to", str(tmp_path / "out"),
                                     "--where", f"lsn>{since}"]) == 0
    wanted = next(each for each in named if each["queue"] == "A" and each["state"] == "lost")
    body = tmp_path / "out" / f"{wanted['qpool']}.body"
    assert body.read_bytes() == b"lost one"
    pair.primary.queues(QUEUES.replace("[A]", "[A]\ndedupe_s = 600"))
    with served(pair, pair.root):
        for _ in range(2):  # the one before was killed, or so it seems
            assert launch.run("omsend", ["--unique-key", wanted["id"], "--spool", str(pair.root),
                                         "--conf", str(pair.primary.conf), "A", str(body)]) == 0
    again = at(pair, old, "rejoin", "--member", "a", "--", *to(pair, pair.root))
    assert again.returncode == Exit.USAGE and "is a standby already" in again.stderr
    with served(pair, pair.root) as c:
        follower = subprocess.Popen([*OMQ, "standby", "follow", "--spool", str(old), "--conf",
                                     str(pair.primary.conf)])
        pair.children.append(follower)
        c.put("C", b"second life")
        lsn = int(lines(at(pair, pair.root, "status", "--json"))[0]["promotions"][0]["lsn"])
        until(lambda: at(pair, old, "status", "--json").stdout and lines(
            at(pair, old, "status", "--json"))[0]["synced_lsn"] > lsn, pair.log.read_text)
        until(lambda: lines(at(pair, pair.root, "status", "--json"))[0]["standbys"][0][
            "lag_frames"] == 0, pair.log.read_text)
    follower.send_signal(signal.SIGTERM)
    assert follower.wait(WAIT_S) == 0
    pair.root.rename(pair.root.with_name("lost"))
    done = at(pair, old, "promote")
    assert done.returncode == 0, done.stderr
    assert open_spool(old).instance.term == 2
    with served(pair, old) as c:
        assert bodies(c, "A") == [b"kept", b"of the new one", b"lost one"], "put again, once"
        assert bodies(c, "B") == [b"finished there"] and bodies(c, "C") == [b"second life"]


def test_a_pool_that_is_past_the_fork_needs_a_copy(pair: Pair, tmp_path: Path) -> None:
    """Nothing is changed but that it is no primary any more."""
    old = pair.primary.root
    apart(pair, tmp_path, writer=True)
    pair.primary.start(MANAGER, WRITER)
    pair.primary.ready()
    pair.primary.stop()
    subprocess.run(["cp", "-a", old, tmp_path / "before"], check=True)
    promoted(pair)
    journal = {each.name: each.read_bytes() for each in (old / "journal").iterdir()}
    done = at(pair, old, "rejoin", "--member", "a", "--", *to(pair, pair.root))
    assert done.returncode == Exit.DATA and "its checkpoint is at LSN" in done.stderr
    assert open_spool(old).instance.role is Role.FORMER and not (old / "aside").exists()
    assert journal == {each.name: each.read_bytes() for each in (old / "journal").iterdir()}
    named = at(pair, old, "rejoin", "--member", "b", "--", *to(pair, pair.root))
    assert named.returncode == Exit.USAGE and "is called b, too" in named.stderr
    nobody = at(pair, old, "rejoin", "--member", "a", "--", "false")
    assert nobody.returncode == Exit.TEMPORARY
