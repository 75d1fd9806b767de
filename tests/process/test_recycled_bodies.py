"""Files of large bodies that are used again, with idel.server and clients: ADR 0227."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from omq.cli.operate import omscan
from omq.ipc.client.connection import Client
from tests.process.instance import MANAGER, WRITER, Instance
from tests.process.processes import WAIT_S

LARGE = 400_000
IDEL = "idel.server"


def filled(made: Instance) -> dict[int, Path]:
    """Containers with bytes, by inode."""
    found = {}
    for path in made.paths.data.glob("*/*"):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        if status.st_size:
            found[status.st_ino] = path
    return found


def put_and_end(made: Instance, c: Client, count: int, size: int = LARGE) -> dict[int, Path]:
    """Bodies that are put, read and done; the files that they had. Returns when idel.server is
    done with them."""
    bodies = [os.urandom(size) for _ in range(count)]
    for each in bodies:
        c.put("A", each)
    had = filled(made)
    with made.connect("reads") as other, other.reader("A") as reader:
        for each in bodies:
            (message,) = reader.next(timeout_s=WAIT_S)
            assert message.body == each
            message.done()
    while c.control({"op": "status"})["counters"]["messages"]:
        pass
    return had


def resting(made: Instance) -> list[str]:
    return os.listdir(made.paths.spares) if made.paths.spares.exists() else []


def kill_with_reader(made: Instance) -> None:
    """idel.server and its reader, which would end in order when its parent is gone."""
    parent = made.children[IDEL].pid
    os.kill(parent, signal.SIGSTOP)
    for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        os.kill(int(pid), signal.SIGKILL)
    made.kill(IDEL)


def test_bodies_are_written_over_those_that_have_ended(omq_instance: Instance) -> None:
    made = omq_instance
    made.start(WRITER, MANAGER, IDEL)
    with made.connect() as c:
        first = put_and_end(made, c, 3)
        assert len(resting(made)) == 3 and filled(made).keys() == first.keys()
        second = put_and_end(made, c, 3, LARGE - 5)
        assert second.keys() == first.keys()
        assert not set(second.values()) & set(first.values()), "no name comes back"
        made.stop(IDEL)
        assert not resting(made) and not filled(made), "an orderly stop gives all back"


def test_after_a_kill_the_next_start_gives_them_back(omq_instance: Instance,
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    """They are told as spares meanwhile, and are neither orphans nor damage."""
    made = omq_instance
    made.start(WRITER, MANAGER, IDEL)
    with made.connect() as c:
        put_and_end(made, c, 2)
        kill_with_reader(made)
        assert len(resting(made)) == 2
        capsys.readouterr()
        assert omscan.main(["--spool", str(made.root), "--conf", str(made.conf),
                            "--older", "0"]) == 0
        said = capsys.readouterr().out
        assert said.startswith("spare ") and said.endswith("; 2 spare\n"), said
        made.start(IDEL)
        while resting(made):
            c.control({"op": "status"})
        while filled(made):
            c.control({"op": "status"})
    made.stop(IDEL)


def test_an_idle_idel_server_gives_them_back(omq_instance: Instance) -> None:
    made = omq_instance
    made.settings(reader_wait_s=1)
    made.start(WRITER, MANAGER, IDEL)
    with made.connect() as c:
        put_and_end(made, c, 2)
        while resting(made) or filled(made):
            c.control({"op": "status"})
    made.stop(IDEL)


def test_none_rests_where_it_is_turned_off(omq_instance: Instance) -> None:
    made = omq_instance
    made.settings(recycled_bytes_max=0)
    made.start(WRITER, MANAGER, IDEL)
    with made.connect() as c:
        put_and_end(made, c, 2)
        assert not made.paths.spares.exists() and not filled(made)
    made.stop(IDEL)


PUTTER = """
import random, sys, omq
with omq.connect(spool=sys.argv[1], name="puts") as c:
    for number in range(int(sys.argv[2]), 10**9):
        chance = random.Random(number)
        c.put("A", number.to_bytes(8, "big") + chance.randbytes(chance.randrange(300_000, 500_000)))
        print(number, flush=True)
"""


def whole(content: bytes) -> int:
    """The number of a body, which is as it was put."""
    number = int.from_bytes(content[:8], "big")
    chance = random.Random(number)
    assert content[8:] == chance.randbytes(chance.randrange(300_000, 500_000)), number
    return number


def test_kills_cost_no_body(omq_instance: Instance) -> None:
    """Of who puts, of who removes, and of the manager, in turn; some bodies wait all the while.
    What was acknowledged comes, as it was put."""
    made, acknowledged, came, offers = omq_instance, set[int](), set[int](), set[str]()
    made.start(WRITER, MANAGER, IDEL)
    made.ready()
    for turn in range(6):
        putter = subprocess.Popen([sys.executable, "-P", "-c", PUTTER, str(made.root),
                                   str(1000 * turn)], stdout=subprocess.PIPE, text=True)
        assert putter.stdout is not None
        with made.connect("reads") as c, c.reader("A") as reader:
            for line in putter.stdout:
                acknowledged.add(int(line))
                offers.update(resting(made))
                if len(acknowledged) % 4:
                    for message in reader.next(timeout_s=0):
                        came.add(whole(message.body))
                        message.done()
                if len(acknowledged) == 12 * (turn + 1):
                    putter.kill()
        acknowledged.update(int(line) for line in putter.communicate()[0].splitlines())
        if turn % 3 == 1:
            kill_with_reader(made)
            made.start(IDEL)
        if turn % 3 == 2:
            made.kill(MANAGER)
            made.start(MANAGER)
            made.ready()
    came.update(whole(message) for message in rest(made))
    assert acknowledged <= came
    assert len(came - acknowledged) <= 6, "of each putter one, which it was not told of"
    assert offers, "there were some to write over"
    made.stop(IDEL)
    assert not resting(made)


def rest(made: Instance) -> list[bytes]:
    """The bodies that are left."""
    with made.connect("reads") as c, c.reader("A") as reader:
        found = []
        while messages := reader.next(timeout_s=0.5):
            for message in messages:
                found.append(message.body)
                message.done()
        return found
