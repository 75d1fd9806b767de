"""Hostile members of the spool's group: floods, thefts, forgeries, nonsense. The manager lives, and
others get what is theirs."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import sysv_ipc

import omq
from omq.base.errors import BadRequest, NoAuthority, OmqError
from omq.format.wire import SETTLE, Operation, Settlement
from omq.ipc.wire.outgoing import Encoded, Outgoing
from omq.storage import segment
from omqtools.omqtest.child import Child
from omqtools.omqtest.instance import MANAGER
from tests.crash.daemons.hostile import (
    GROUP,
    HOSTILE_UID,
    VICTIM_UID,
    RawLink,
    as_user,
    endless_line,
    odd_lines,
    random_requests,
)
from tests.crash.daemons.test_storm import LONG
from tests.crash.daemons.world import Run, running

WAIT_S = 120.0
REQUESTS = 200_000 if LONG else 4000
AUTHORITY = f"[A]\nuser:{HOSTILE_UID} = put get\nuser:{VICTIM_UID} = put get\n" \
            f"[B]\nuser:{VICTIM_UID} = put get\n"


@contextmanager
def shared_spool() -> Iterator[Run]:
    """A run whose spool other users of the group may use."""
    if os.geteuid():
        pytest.skip("other users need root")
    with tempfile.TemporaryDirectory(prefix="omq-") as name:
        place = Path(name)
        os.chown(place, 0, GROUP)
        place.chmod(0o750)
        with running(place / "spool", place) as run:
            for path in (run.instance.spool, *run.instance.spool.rglob("*")):
                os.chown(path, 0, GROUP)
                if path.is_dir():  # what the daemons make there is the group's too
                    path.chmod(0o2750)
            (run.instance.conf / "authority.conf").write_text(AUTHORITY)
            (place / "clients").touch()
            (place / "clients").chmod(0o666)
            run.start()
            yield run


def _child(run: Run, uid: int, work: Callable[[], int]) -> Child:
    return as_user(uid, work, run.instance.place.parent / "clients")


def _said(run: Run) -> str:
    return (run.instance.place.parent / "clients").read_text() + run.instance.said()


def _join(run: Run, child: Child) -> None:
    assert child.wait(WAIT_S) == 0, _said(run)


def _serves(run: Run) -> None:
    """The same manager still does its work."""
    assert run.instance.running[MANAGER].poll() is None, run.instance.said()
    with run.instance.connect() as c:
        c.put("B", b"still")
        with c.reader("B") as reader:
            (message,) = reader.next(timeout_s=WAIT_S)
            assert message.body == b"still"
            message.done()


@pytest.mark.parametrize("seed", range(4))
def test_random_requests(seed: int) -> None:
    """Right token, wrong everything else: refused and counted."""
    with shared_spool() as run:
        spool = run.instance.spool
        seed = secrets.randbits(32) if LONG else seed
        _join(run, _child(run, HOSTILE_UID, lambda: random_requests(spool, seed, REQUESTS // 4)))
        _serves(run)
        with run.instance.connect() as c:
            assert c.control({"op": "status"})["counters"]["refused"] > REQUESTS // 20


def test_odd_lines() -> None:
    with shared_spool() as run:
        spool = run.instance.spool
        _join(run, _child(run, HOSTILE_UID, lambda: odd_lines(spool)))
        _join(run, _child(run, HOSTILE_UID, lambda: endless_line(spool)))
        _serves(run)


def test_flood() -> None:
    """Rubbish where requests go, over and over, from one connection after another: others' puts go
    on."""
    def flood(spool: Path, stop: int) -> int:
        while not select.select([stop], [], [], 0)[0]:
            with contextlib.suppress(OSError, omq.OmqError):  # closed after a few
                link = RawLink(spool)
                with contextlib.closing(link):
                    for raw in (b"", b"x", os.urandom(96), b"\0" * 96, os.urandom(2000)) * 20:
                        link.bytes_out(raw)
        return 0

    with shared_spool() as run:
        end, stop = os.pipe()
        spool = run.instance.spool
        flooder = _child(run, HOSTILE_UID, lambda: flood(spool, end))
        with run.instance.connect() as c:
            for number in range(50):
                c.put("B", b"%d" % number)
            os.write(stop, b"x")
            _join(run, flooder)
            assert c.control({"op": "status"})["counters"]["garbage"] >= 9
            with c.reader("B", batch=50) as reader:
                assert len(reader.next(timeout_s=WAIT_S)) == 50
        os.close(end)
        os.close(stop)


def test_objects_of_others_are_closed() -> None:
    """Channels, semaphores, the request queue, the index: what a group member may not do."""
    def steal(shm: list[int], sem: list[int], msg: list[int]) -> int:
        allowed = []
        for identifier in shm:
            for write in (True, False):
                try:
                    segment.attach(identifier, write=write)
                except sysv_ipc.Error:
                    continue
                allowed.append(f"attached {identifier}, write {write}")
        for key in sem:
            try:
                sysv_ipc.Semaphore(key).release()
                allowed.append(f"released {key}")
            except sysv_ipc.Error:
                continue
        for key in msg:
            try:
                queue = sysv_ipc.MessageQueue(key, mode=0o200)
            except sysv_ipc.PermissionsError:
                continue
            allowed.append("opened the request queue")
            for forbidden in (partial(queue.receive, block=False), queue.remove):
                try:
                    forbidden()
                    allowed.append("received from or removed the request queue")
                except sysv_ipc.Error:
                    continue
        print(allowed)
        return len(allowed)

    def ids(kind: str, column: int) -> list[int]:
        lines = Path("/proc/sysvipc", kind).read_text().splitlines()[1:]
        return [int(line.split()[column]) for line in lines]

    with shared_spool() as run, run.instance.connect():
        shm, sem, msg = ids("shm", 1), ids("sem", 0), ids("msg", 0)
        assert len(shm) >= 2 and sem and len(msg) == 1
        _join(run, _child(run, HOSTILE_UID, lambda: steal(shm, sem, msg)))
        _serves(run)


def _settle_all(link: RawLink, held: list[tuple[int, int, int]]) -> None:
    """DONE for (entry, QPoolId, lease) of others, several ways."""
    for entry, qpool, lease in held:
        link.scribble(SETTLE.pack(Settlement.DONE, 0, 0, entry, qpool, lease, 0, 0, 0))
        link.raw(operation=Operation.SETTLE, count=1)
        link.control({"op": "status"})
        link.raw(operation=Operation.MOVE, count=0, parts=0)
        link.control({"op": "status"})
    many = b"".join(SETTLE.pack(Settlement.DONE, 0, 0, *row, 0, 0, 0) for row in held) * 20
    link.scribble(many)
    link.raw(operation=Operation.SETTLE, count=len(held) * 20)
    link.control({"op": "status"})


def test_forged_done() -> None:
    """A settlement of what somebody else holds does not hold, under whatever client number."""
    def forge(spool: Path, held: list[tuple[int, int, int]]) -> int:
        link = RawLink(spool)
        _settle_all(link, held)
        link.close()
        for client in range(20):  # each over its own connection: a few bad lines close one
            link = RawLink(spool)
            link.raw(operation=Operation.SETTLE, count=1, client=client, token=bytes(16))
            link.control({"op": "status"})
            link.close()
        return 0

    with shared_spool() as run, run.instance.connect() as c:
        spool = run.instance.spool
        c.put_many("B", [b"%d" % i for i in range(5)])
        with c.reader("B", batch=5) as reader:
            messages = reader.next(timeout_s=WAIT_S)
            held = [(m.entry, m.qpool_id, m.lease) for m in messages]
            _join(run, _child(run, HOSTILE_UID, lambda: forge(spool, held)))
            for message in messages:
                message.done()
            reader.flush()
            assert reader.lost == 0


def test_forged_claims_after_a_restart() -> None:
    """What a reader held when the manager died is not given to whoever names it first."""
    def claim(spool: Path, held: list[tuple[int, int, int]]) -> int:
        link = RawLink(spool)
        _settle_all(link, held)
        link.reader.messages = lambda: [(qpool, lease) for _, qpool, lease in held]
        link._drop()
        deadline = time.monotonic() + WAIT_S
        while True:  # registers again, with its claims, once the manager has seen the end
            try:
                link.control({"op": "status"})
                break
            except BadRequest as refusal:
                assert "token is in use" in str(refusal) and time.monotonic() < deadline, refusal
                link._drop()
        link.number = 0
        _settle_all(link, held)
        return 0

    with shared_spool() as run:
        spool = run.instance.spool
        with run.instance.connect() as c:
            c.put_many("B", [b"%d" % i for i in range(5)])
            with c.reader("B", batch=5) as reader:
                messages = reader.next(timeout_s=WAIT_S)
                held = [(m.entry, m.qpool_id, m.lease) for m in messages]
                conf = run.instance.conf / "omq.conf"  # however long the thief may take
                conf.write_text(conf.read_text().replace(
                    "reconnect_grace_s = 1", "reconnect_grace_s = 60"))
                run.instance.kill(MANAGER)
                run.instance.start(MANAGER)
                run.instance.ready()
                _join(run, _child(run, HOSTILE_UID, lambda: claim(spool, held)))
                for message in messages:
                    message.release()
                reader.flush()
                assert reader.lost == 0
                again = reader.next(timeout_s=WAIT_S)
                assert sorted(m.body for m in again) == [b"%d" % i for i in range(5)]
                for message in again:
                    message.done()


def test_no_authority_no_message() -> None:
    """Neither put nor get on B, nor by a move, nor on several queues at once."""
    def meddle(spool: Path) -> int:
        refused = 0
        with omq.connect(spool, name="hostile") as c:
            c.put("A", b"mine")
            for forbidden in (
                lambda: c.put("B", b"x"), lambda: c.put(["A", "B"], b"x"),
                lambda: c.put_many("B", [b"x"] * 20), lambda: c.reader("B"),
                lambda: c.put("POISON", b"x"), lambda: c.put("IDEL", b"x"),
            ):
                try:
                    forbidden()
                except (NoAuthority, BadRequest):
                    refused += 1
            with c.reader("A") as reader:
                (message,) = reader.next(timeout_s=120)
                try:
                    message.move("B", new=[Outgoing(b"new", queues=("B",))])
                except NoAuthority:
                    refused += 1
                message.release()
        return 7 - refused

    with shared_spool() as run, run.instance.connect() as c:
        spool = run.instance.spool
        _join(run, _child(run, HOSTILE_UID, lambda: meddle(spool)))
        assert not list(c.browse("B")) and len(list(c.browse("A"))) == 1


def test_a_container_of_somebody_else() -> None:
    """A put that names another message's container would have it removed: refused."""
    def put(spool: Path, reference: bytes) -> int:
        with omq.connect(spool, name="hostile") as c:
            encoded = c.encode(Outgoing(reference), ("A",))
            refused = 0
            for count, operation in ((1, Operation.PUT), (1, Operation.PUT_MANY)):
                head = b"" if operation is Operation.PUT else _container_head(encoded)
                try:
                    c._link.request(
                        operation, head + encoded.payload, priority=4, flags=3,
                        queue=encoded.queue, count=count, length=len(encoded.payload),
                        size=encoded.size, crc=encoded.crc)
                except OmqError:
                    refused += 1
        return 2 - refused

    with shared_spool() as run, run.instance.connect() as c:
        spool = run.instance.spool
        body = os.urandom(100_000)
        c.put("B", body)
        with c.reader("B") as reader:
            (message,) = reader.next(timeout_s=WAIT_S)
            path = message.path
            assert path is not None
            reference = f"~/data/{path.parent.name}/{path.name}".encode()
            message.release()
        _join(run, _child(run, HOSTILE_UID, lambda: put(spool, reference)))


def _container_head(encoded: Encoded) -> bytes:
    return replace(encoded, flags=3).head()
