"""Who may read what: the table of docs/SECURITY.md, line by line, as the users it speaks of."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import sysv_ipc

import omq
from omq.base import modes
from omq.base.errors import (
    AccessDenied,
    BadRequest,
    Exit,
    NoAuthority,
    NoMessage,
    NotOperator,
    OmqError,
)
from omq.cli import launch
from omq.core.index.view import IndexView
from omq.storage import segment
from tests.process.instance import MANAGER, WRITER, Instance, instance
from tests.process.processes import WAIT_S
from tests.process.trust_world import (
    CLIENTS,
    MEMBER,
    OPERATOR,
    OPERATORS,
    SERVICE,
    TrustInstance,
    trust_instance,
)

SECRET = b"the secret of "
LARGE = 300_000


@pytest.fixture
def trusting() -> Iterator[TrustInstance]:
    """A service user's instance; nothing of it is started yet."""
    with trust_instance() as made:
        yield made


def fill(made: TrustInstance) -> dict[str, list[int]]:
    """Messages of every kind on A and B, put by root; their QPoolIds."""
    found: dict[str, list[int]] = {"A": [], "B": []}
    with made.connect("root") as c:
        for queue, ids in found.items():
            secret = SECRET + queue.encode()
            for body in (secret, secret * LARGE):
                ids.append(int(c.put(queue, body)[32:], 16))
            ids.append(int(c.put(queue, secret, persistent=False)[32:], 16))
    return found


def entries(root: Path) -> list[Path]:
    return [root, *sorted(root.rglob("*"))]


def test_modes_of_a_lively_spool(trusting: TrustInstance) -> None:
    """Every path is as the table of modes says, and belongs to the service user."""
    trusting.start(WRITER, MANAGER, "idel.server")
    fill(trusting)
    trusting.as_user(MEMBER, lambda: _large_both_ways(trusting))
    seen = set()
    for path in entries(trusting.root):
        try:
            found = path.lstat()
        except FileNotFoundError:  # a lively spool
            continue
        relative = path.relative_to(trusting.root).as_posix()
        wanted = modes.wanted(relative, directory=stat.S_ISDIR(found.st_mode))
        given_out = modes.GIVEN_OUT if relative.startswith("data/") and path.is_file() else 0
        assert stat.S_IMODE(found.st_mode) & ~given_out == wanted, (relative, oct(found.st_mode))
        assert found.st_uid == SERVICE, relative
        if wanted == modes.SOCKET:
            assert found.st_gid == CLIENTS
        seen.add(relative.split("/")[0])
    assert {"journal", "msgpool", "data", "volatile", "run", "logs", "instance.json"} <= seen
    trusting.children["idel.server"].signal(15)
    trusting.children["idel.server"].wait()


def test_a_member_without_a_grant_reads_nothing(trusting: TrustInstance) -> None:
    """Files, memory, other clients' channels, the manager's /proc, and the manager's answers."""
    trusting.start(WRITER, MANAGER)
    ids = fill(trusting)
    manager = trusting.children[MANAGER].pid
    paths = [path for path in entries(trusting.root) if path.is_file() or path.is_dir()]
    objects = trusting.space.objects()
    public = {trusting.paths.uuid, trusting.paths.ids,
              trusting.paths.pid_file("qmgr"), trusting.paths.pid_file("pool")}

    def look() -> None:
        opened = {path for path in paths if _opens(path)}
        assert opened == public
        for kind, number in objects:
            if kind == "shm":
                with pytest.raises(sysv_ipc.PermissionsError):
                    segment.attach(number)
        for path in ("mem", "maps", "fd", "environ", "root"):
            with pytest.raises(PermissionError):
                list(Path(f"/proc/{manager}", path).iterdir() if path in ("fd", "root")
                     else [Path(f"/proc/{manager}", path).read_bytes()[:1]])
        with omq.connect(trusting.root, timeout_s=WAIT_S) as c:
            for qpool in (*ids["A"], *ids["B"], 10**9):
                with pytest.raises(NoMessage):
                    c.body(qpool)
                with pytest.raises(NoMessage):
                    c.control({"op": "container", "qpool": qpool})
                with pytest.raises(BadRequest, match="may not read"):
                    c.control({"op": "locate", "qpool": qpool})
            for refused in (lambda: c.reader("A"), lambda: c.put("A", b"x"),
                            lambda: c.put("A", b"x" * LARGE)):
                with pytest.raises(NoAuthority):
                    refused()
            with pytest.raises(NotOperator):
                c.browse("A")

    nobody = OPERATOR  # a member of the clients' group only, without a line in authority.conf
    with trusting.connect("reads") as c, c.reader("A", batch=10) as reader:
        assert len(reader.next(timeout_s=WAIT_S)) == 3  # bodies lie in channels, too
        objects = trusting.space.objects()
        trusting.as_user(nobody, look)


def _opens(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def test_without_the_clients_group_nobody_connects(trusting: TrustInstance) -> None:
    trusting.start()
    trusting.ready()

    def look() -> None:
        with pytest.raises(AccessDenied, match=f"member of group .*{CLIENTS}"):
            omq.connect(trusting.root, timeout_s=WAIT_S)

    trusting.as_user(MEMBER, look, groups=(OPERATORS,))


def test_browse_is_a_right_of_one_queue(trusting: TrustInstance) -> None:
    trusting.start(WRITER, MANAGER)
    ids = fill(trusting)

    def look() -> None:
        with omq.connect(trusting.root, timeout_s=WAIT_S) as c:
            small, large, volatile = (c.body(qpool) for qpool in ids["A"])
            assert small == volatile == SECRET + b"A" and large == (SECRET + b"A") * LARGE
            for qpool in ids["B"]:
                with pytest.raises(NoMessage):
                    c.body(qpool)

    trusting.as_user(MEMBER, look)
    assert len(trusting.drain("A")) == len(trusting.drain("B")) == 3


def _large_both_ways(made: TrustInstance) -> None:
    big = os.urandom(3_000_000)
    with omq.connect(made.root, timeout_s=WAIT_S) as c:
        many = [b"%d" % i * 1000 for i in range(300)]
        known = [c.put("A", big)]
        known += c.put_many("A", [*many[:100], big, *many[100:]])
        assert len(set(known)) == len(many) + 2
        with c.reader("A", batch=500) as reader:
            found = []
            while batch := reader.next(timeout_s=0):
                for message in batch:
                    found.append(message.body)
                    message.done()
        mine = [body for body in found if not body.startswith(SECRET)]
        assert mine == [big, *many[:100], big, *many[100:]]


def test_a_member_puts_and_gets_bodies_of_all_sizes(trusting: TrustInstance) -> None:
    """In batches; more than a channel holds are fetched one by one, containers by descriptor."""
    trusting.start(WRITER, MANAGER, "idel.server")
    trusting.ready()
    trusting.as_user(MEMBER, lambda: _large_both_ways(trusting))
    trusting.children["idel.server"].signal(15)
    trusting.children["idel.server"].wait()


def test_a_member_moves_on_with_large_messages(trusting: TrustInstance) -> None:
    """The new messages of a move are as large as they like, and each container counts once."""
    (trusting.conf / "authority.conf").write_text(
        f"[A]\nuser:{MEMBER} = put get\n[B]\nuser:{MEMBER} = put get\n")
    trusting.start()
    trusting.ready()
    big = os.urandom(LARGE)

    def work() -> None:
        with omq.connect(trusting.root, timeout_s=WAIT_S) as c:
            c.put("A", b"order")
            with c.reader("A") as reader:
                (message,) = reader.next(timeout_s=WAIT_S)
                new = [omq.Outgoing(big + b"1", ("B",)), omq.Outgoing(big + b"2", ("B",))]
                message.move("B", new)

    trusting.as_user(MEMBER, work)
    assert [m.body for m in trusting.drain("B")] == [b"order", big + b"1", big + b"2"]


def test_a_large_body_of_root_belongs_to_the_service_user(trusting: TrustInstance) -> None:
    """It was root's, nobody could read it, and IDEL tried to delete it 140 times a second."""
    trusting.start(WRITER, MANAGER, "idel.server")
    body = os.urandom(LARGE)
    with trusting.connect("root") as c:
        c.put("A", body)
    (container,) = [path for path in entries(trusting.paths.data) if path.is_file()]
    assert container.stat().st_uid == container.parent.stat().st_uid == SERVICE

    def read() -> None:
        with omq.connect(trusting.root, timeout_s=WAIT_S) as c, c.reader("A") as reader:
            (message,) = reader.next(timeout_s=WAIT_S)
            assert message.body == body
            message.done()

    trusting.as_user(SERVICE, read)
    with trusting.connect() as c:
        while c.control({"op": "status"})["counters"]["messages"]:
            pass
    assert not container.exists()
    trusting.children["idel.server"].signal(15)
    trusting.children["idel.server"].wait()


def test_a_held_descriptor_holds_no_space(trusting: TrustInstance) -> None:
    """What a reader was given stays open as long as it likes; the container is cut all the same."""
    trusting.start(WRITER, MANAGER, "idel.server")
    with trusting.connect("root") as c:
        c.put("A", b"x" * LARGE)

    def read() -> None:
        with omq.connect(trusting.root, timeout_s=WAIT_S) as c:
            with c.reader("A") as reader:
                (message,) = reader.next(timeout_s=WAIT_S)
                c.control({"op": "container", "qpool": message.qpool_id})
                held = c._link.take_descriptor()
                assert os.fstat(held).st_size == LARGE
                assert os.fstat(held).st_mode & modes.GIVEN_OUT, "its file is used for no other"
                with pytest.raises(OSError, match="Bad file descriptor"):
                    os.write(held, b"y")
                with pytest.raises(PermissionError):
                    os.open(f"/proc/self/fd/{held}", os.O_RDWR)
                message.done()
            while os.fstat(held).st_nlink:
                c.control({"op": "status"})
            assert os.fstat(held).st_size == 0

    trusting.as_user(MEMBER, read)
    trusting.children["idel.server"].signal(15)
    trusting.children["idel.server"].wait()


def test_operators_look_and_read_no_body(trusting: TrustInstance) -> None:
    """The index has no bodies; files and rights are as for any other."""
    trusting.start(WRITER, MANAGER)
    ids = fill(trusting)
    arguments = ["--spool", str(trusting.root), "--conf", str(trusting.conf)]

    paths = [path for path in entries(trusting.root) if path.is_file() or path.is_dir()]
    opened = [trusting.paths.uuid, trusting.paths.ids]

    def look() -> None:
        with IndexView.attach(trusting.paths) as view:
            assert {row.message.qpool for row in view.entries("A")} == set(ids["A"])
        with pytest.raises(PermissionError):
            segment.attach(_ids(trusting), write=True)
        assert launch.run("omstat", ["-s", *arguments]) == 0
        assert launch.run("omqdump", ["-e", "l A", *arguments]) == 0
        with pytest.raises(AccessDenied):
            omq.connect(trusting.root)
        assert [path for path in paths if _opens(path)] == opened

    def ids_only() -> None:
        try:
            look()
        except sysv_ipc.PermissionsError:  # of attaching for writing
            return

    trusting.as_user(OPERATOR, ids_only, groups=(OPERATORS,))


def _ids(made: TrustInstance) -> int:
    found = segment.read_ids(made.paths)
    assert found is not None
    return found.segment


@pytest.mark.parametrize(("tool", "words"), [
    ("omqdump", ["-e", "l A"]), ("omqcheck", []), ("omqwhy", ["1"]), ("omqshape", []),
    ("omscan", [])])
def test_looking_tools_say_that_they_need_the_group(trusting: TrustInstance, tool: str,
                                                    words: list[str]) -> None:
    trusting.start()
    trusting.ready()
    arguments = ["--spool", str(trusting.root), "--conf", str(trusting.conf)]

    def look() -> None:
        assert launch.run(tool, [*words, *arguments]) == Exit.NO_PERMISSION

    trusting.as_user(MEMBER, look)
    said = trusting.members.read_text()
    assert "may not use" in said and "Traceback" not in said, said


def test_an_older_spool_is_closed_at_the_start(trusting: TrustInstance) -> None:
    """0640 and 0750 of the group, as omq 0.13 left them; said once, and nothing is lost."""
    trusting.start(WRITER, MANAGER)
    ids = fill(trusting)
    trusting.stop()
    foreign = trusting.paths.data / "0000000"
    foreign.mkdir()
    for path in entries(trusting.root):
        os.chown(path, 0 if path == foreign else SERVICE, CLIENTS)
        path.chmod(0o750 if path.is_dir() else 0o640)
    count = sum(path.is_file() for path in entries(trusting.root))
    trusting.start(WRITER, MANAGER)
    trusting.ready()
    (done,) = trusting.events(1265)
    assert done["files"] > count // 2 and done["directories"] >= 10
    (strange,) = trusting.events(1266)
    assert strange["path"] == str(foreign) and strange["command"].startswith("chown -R")
    for path in entries(trusting.root):
        relative = path.relative_to(trusting.root).as_posix()
        wanted = modes.wanted(relative, directory=path.is_dir())
        assert path == foreign or not path.lstat().st_mode & 0o777 & ~wanted, relative
    (index,) = (line.split() for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
                if int(line.split()[1]) == _ids(trusting))
    assert (int(index[2], 8) & 0o777, int(index[8])) == (modes.INDEX, OPERATORS)
    foreign.rmdir()
    assert len(trusting.drain("A")) == len(ids["A"]) - 1  # the volatile one ended with its manager
    trusting.stop()
    trusting.start()
    trusting.ready()
    assert len(trusting.events(1265)) == 1


@pytest.mark.parametrize("group", ["no_such_group", "0"])
def test_a_group_that_cannot_be_given_is_a_wrong_configuration(trusting: TrustInstance, group: str
                                                               ) -> None:
    trusting.settings(operators_group=group)
    assert trusting.start().wait() == Exit.CONFIG
    assert "operators_group" in trusting.said()
    trusting.settings()


def test_an_instance_of_a_normal_user_needs_no_set_up(tmp_path: Path) -> None:
    """No groups are named: all is the user's own, and the tools look."""
    with instance(tmp_path) as made:
        made.start(WRITER, MANAGER)
        with made.connect() as c:
            c.put("A", b"x" * LARGE)
            assert [row.message.size for row in c.browse("A")] == [LARGE]
        for path in entries(made.root):
            relative = path.relative_to(made.root).as_posix()
            wanted = modes.wanted(relative, directory=path.is_dir())
            assert stat.S_IMODE(path.lstat().st_mode) == wanted, relative


def test_what_cannot_be_deleted_waits_on_idel(omq_instance: Instance) -> None:
    """Ever longer, said once a message; it goes as soon as it can."""
    made = omq_instance
    made.start(WRITER, MANAGER, "idel.server")
    with made.connect() as c:
        c.put("A", b"x" * LARGE)
        (folder,) = made.paths.data.iterdir()
        (container,) = folder.iterdir()
        with made.connect("reads") as other, other.reader("A") as reader:
            (message,) = reader.next(timeout_s=WAIT_S)
            container.unlink()
            container.mkdir()  # root could delete anything else
            message.done()
        while not made.events(1267):
            c.control({"op": "status"})
        with IndexView.attach(made.paths) as view:
            (row,) = view.entries("IDEL")
        assert row.attempts >= 2
        assert len([e for e in made.events() if e["service"] == "idel.server"
                    and e["level"] in ("ERROR", "WARNING")]) == 1
        container.rmdir()
        made.stop("idel.server")
        made.stop(MANAGER, WRITER)  # a new manager does not wait
        made.start(WRITER, MANAGER, "idel.server")
        while c.control({"op": "status"})["counters"]["messages"]:
            pass
    made.stop("idel.server")


def test_what_can_never_be_deleted_is_set_aside(omq_instance: Instance,
                                                capsys: pytest.CaptureFixture[str]) -> None:
    """After its attempts its message is gone and the others go on; omscan lists the file,
    and removes it once the cause is gone."""
    made = omq_instance
    made.settings(idel_attempts_max=3)
    made.start(WRITER, MANAGER, "idel.server")
    with made.connect() as c:
        c.put("A", b"x" * LARGE)
        (folder,) = made.paths.data.iterdir()
        (container,) = folder.iterdir()
        c.put("B", b"y" * LARGE)
        with made.connect("reads") as other:
            with other.reader("A") as reader:
                (message,) = reader.next(timeout_s=WAIT_S)
                container.unlink()
                container.mkdir()  # root could delete anything else
                message.done()
            with other.reader("B") as reader:
                (message,) = reader.next(timeout_s=WAIT_S)
                message.done()
        while c.control({"op": "status"})["counters"]["messages"]:
            pass
    (told,) = made.events(1269)
    assert (told["path"], told["command"]) == (str(container), "omscan --remove")
    assert container.is_dir()
    made.stop("idel.server")
    made.stop(MANAGER, WRITER)
    container.rmdir()
    container.write_bytes(b"x")
    words = ["--spool", str(made.root), "--conf", str(made.conf), "--older", "0"]
    assert launch.run("omscan", words) == Exit.NO
    assert f"~/{container.relative_to(made.root)}" in capsys.readouterr().out
    assert launch.run("omscan", [*words, "--remove", "--yes"]) == Exit.OK
    assert not container.exists()


def test_errors_have_their_codes() -> None:
    """What scripts see."""
    assert NotOperator.exit_code is NoAuthority.exit_code is Exit.NO_PERMISSION
    assert issubclass(NotOperator, OmqError)
