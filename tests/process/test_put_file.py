"""A file that is there becomes the body of a message: shared, copied, or refused."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import omq
import omq.aio
from omq.base.errors import AccessDenied, DiskError
from omq.cli.queue import omsend
from omq.ipc.client import file_puts
from omq.storage import durable
from omq.storage.disk import Disk
from tests.needs import need_btrfs
from tests.process.instance import Instance
from tests.process.processes import WAIT_S
from tests.process.test_pieces import containers

CONTENT = b"0123456789abcdef" * 40_000
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def film(tmp_path: Path) -> Path:
    path = tmp_path / "film"
    path.write_bytes(CONTENT)
    return path


def taken(c: omq.Connection, queue: str = "A") -> tuple[str, bytes]:
    with c.reader(queue) as reader:
        (message,) = reader.next(1, WAIT_S)
        body = message.body
        message.done()
    return message.message_id, body


def test_on_a_file_system_that_shares_blocks(tmp_path: Path) -> None:
    need_btrfs()
    done = subprocess.run(
        ["unshare", "--mount", "--ipc", sys.executable, "-m", "tests.process.claim_on_btrfs",
         ROOT / "tests/golden/claims/btrfs.xz", tmp_path], cwd=ROOT, text=True,
        capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, "shared\n"), done.stderr


def test_where_it_is_copied(omq_instance: Instance, film: Path, tmp_path: Path,
                            monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
                            ) -> None:
    """By the owner, by others, by coroutines, by the command; an open file, a descriptor; on two
    queues; small ones."""
    omq_instance.start()
    small = tmp_path / "small"
    small.write_bytes(b"few")
    monkeypatch.setenv("OMQ_SPOOL", str(omq_instance.root))
    with omq_instance.connect() as c:
        put = c.put_file("A", film, omq.Outgoing(properties={"a": "b"}))
        assert put[1:] == (len(CONTENT), False)
        assert taken(c) == (put.message_id, CONTENT)
        with film.open("rb") as file:
            file.seek(100)
            for each in (file, file.fileno()):
                put = c.put_file(["A", "B"], each)
                assert taken(c) == taken(c, "B") == (put.message_id, CONTENT)
        put = c.put_file("A", str(small), copy=False)
        assert put[1:] == (3, False) and taken(c) == (put.message_id, b"few")

        async def by_coroutine() -> omq.FilePut:
            async with omq.aio.connect(omq_instance.root) as shared:
                return await shared.put_file("A", film)

        put = asyncio.run(by_coroutine())
        assert taken(c) == (put.message_id, CONTENT)
        assert omsend.main(["A", str(film), str(small), "--claim", "--priority", "8"]) == 0
        out, err = capfd.readouterr()
        assert err.count("was copied") == 2 and str(film) in err
        assert [taken(c), taken(c)] == [*zip(out.split(), (CONTENT, b"few"), strict=True)]
        monkeypatch.setattr(c._link, "owns", False)  # as for a user who is not the spool's owner
        monkeypatch.setattr(c._link, "trusted", False)
        put = c.put_file("A", film)
        assert not put.shared and taken(c) == (put.message_id, CONTENT)
        with pytest.raises(omq.FileNotShared, match="only the owner"):
            c.put_file("A", film, copy=False)
        assert list(c.browse("A")) == []


class Shares(Disk):
    """A file system that can; `error`: or says so instead."""

    def __init__(self, error: int = 0) -> None:
        self.error = error

    def clone(self, fd: int, source: int) -> None:
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        os.pwrite(fd, os.pread(source, 1 << 30, 0), 0)


class Full(Disk):
    """A disk without room for bodies."""

    def pwritev(self, fd: int, buffers: Any, offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def grows(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def shrinks(path: Path) -> None:
    os.truncate(path, 70_000)


def is_written(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"other")
    os.utime(path, ns=(1, 1))


@pytest.mark.parametrize("shares", [False, True])
def test_what_happens_meanwhile(omq_instance: Instance, film: Path, tmp_path: Path,
                                monkeypatch: pytest.MonkeyPatch, *, shares: bool) -> None:
    """A file that is changed before its blocks are shared or all copied is refused, and no
    container stays. What becomes of its name matters to nobody."""
    omq_instance.start()
    other = tmp_path / "other"
    other.write_bytes(b"secret" * 50_000)
    read = os.pread

    def meanwhile(what: Callable[[Path], None]) -> None:
        """Behind the first piece that is read of it, or before its blocks are shared."""
        def then(fd: int, length: int, at: int) -> bytes:
            found = read(fd, length // 64 if at == 0 else length, at)
            if at == 0 and os.path.realpath(f"/proc/self/fd/{fd}") == str(film):
                what(film)
            return found

        monkeypatch.setattr(os, "pread", then)

    def exchange(path: Path) -> None:
        path.rename(tmp_path / "old")
        path.symlink_to(other)

    with omq_instance.connect() as c:
        before = durable.use(Shares()) if shares else durable.current()
        try:
            for what in (grows, shrinks, is_written):
                film.write_bytes(CONTENT)
                meanwhile(what)
                with pytest.raises(omq.FileChanged, match="nothing was put"):
                    c.put_file("A", film, copy=not shares)
                monkeypatch.undo()
                assert list(c.browse("A")) == [] and containers(omq_instance) == []
            film.write_bytes(CONTENT)
            with film.open("rb") as file:  # opened once, its name is another's then
                exchange(film)
                assert c.put_file("A", file).shared is shares
            assert taken(c)[1] == CONTENT
            with pytest.raises(omq.FileNotPut, match="symbolic link"):
                c.put_file("A", film)
        finally:
            durable.use(before)


def test_what_cannot_be_put(omq_instance: Instance, film: Path, tmp_path: Path,
                            monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
                            ) -> None:
    omq_instance.queues("[*]\n\n[A]\nmax_length = 10000000\n\n[FULL]\nmax_depth = 1\n")
    omq_instance.start()
    monkeypatch.setenv("OMQ_SPOOL", str(omq_instance.root))
    fifo, sparse = tmp_path / "fifo", tmp_path / "sparse"
    os.mkfifo(fifo)
    with sparse.open("wb") as file:
        file.truncate(1 << 43)
    with omq_instance.connect() as c, socket.socket() as line, film.open("ab") as written:
        for name, reason in ((tmp_path / "absent", "No such file"), (tmp_path, "a directory"),
                             (fifo, "a pipe"), ("/dev/null", "a device"),
                             (line.fileno(), "a socket"), (written, "not open for reading"),
                             ("a\0b", "null byte"), (film / "below", "Not a directory")):
            with pytest.raises(omq.FileNotPut, match=reason):
                c.put_file("A", name)
        none_of_these: list[Any] = [None, 3.5, True, -1, b"", written.fileno() + 900, []]
        for wrong in none_of_these:
            with pytest.raises((omq.BadArgument, omq.FileNotPut)):
                c.put_file("A", wrong)
        with pytest.raises(omq.MessageTooLong):  # and nothing of 8 TiB is read
            c.put_file("A", sparse)
        with pytest.raises(omq.FileChanged):  # it says that it has no bytes, and has some
            c.put_file("A", "/proc/version")
        with pytest.raises(omq.BadArgument, match="outgoing"):
            c.put_file("A", film, omq.Outgoing(b"a body"))
        with pytest.raises(omq.FileNotShared, match="file system"):
            c.put_file("A", film, copy=False)
        c.put("FULL", b"1")
        with pytest.raises(omq.QueueFull):
            c.put_file("FULL", film)
        for disk, error in ((Full(), omq.SpoolFull), (Shares(errno.ENOSPC), omq.SpoolFull),
                            (Shares(errno.EDQUOT), omq.SpoolFull), (Shares(errno.EIO), DiskError)):
            before = durable.use(disk)
            try:
                with pytest.raises(error):
                    c.put_file("A", film)
            finally:
                durable.use(before)
        assert list(c.browse("A")) == [] and containers(omq_instance) == []
        for words in (["A", "--claim"], ["A", "-", "--claim"],
                      ["A", str(film), "--claim", "--when-done", "0" * 48]):
            with pytest.raises(omq.BadRequest, match="--claim is for files"):
                omsend.main(words)
        with pytest.raises(omq.FileNotPut, match="a pipe"):
            omsend.main(["A", str(fifo), "--claim"])
    capfd.readouterr()


def test_only_what_the_caller_may_read(film: Path, tmp_path: Path) -> None:
    """It is opened with the caller's rights: nobody reads for him."""
    film.chmod(0o600)
    if os.geteuid() == 0:
        done = subprocess.run(
            [sys.executable, "-c", "import os, sys; from omq.ipc.client.file_puts import Source\n"
             "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
             "try: Source(sys.argv[1])\nexcept Exception as error: print(type(error).__name__)",
             film], text=True, capture_output=True, check=False)
        assert done.stdout == "AccessDenied\n", done
        return
    film.chmod(0)
    with pytest.raises(AccessDenied):
        file_puts.Source(film)
