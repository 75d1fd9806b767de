"""local.delivery and its Maildirs: every byte, exactly once, whatever dies in between."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omq.base.errors import BadName
from omq.services.mail.local_delivery import LocalDeliveryService, delivery_fields
from omq.services.mail.maildir import Maildir, file_name, mailbox_name
from omq.services.readers.service import Defer, Done, Move
from omq.storage import durable
from omq.storage.disk import Disk

BODY = b"Subject: x\r\n\r\n.hello\r\n"
TO = {"mail.from": "s@far.test", "mail.to.LOCAL": "alice\nbob",
      "mail.orig.LOCAL": "alice@example.org\nteam@example.org"}


class FailingDisk(Disk):
    """Fails the n-th call of one kind, as a real disk does; later ones work."""

    def __init__(self, method: str, nth: int, number: int = errno.EIO) -> None:
        self.method, self.left, self.number = method, nth, number

    def _fail(self, method: str) -> None:
        if method == self.method:
            self.left -= 1
            if self.left == 0:
                raise OSError(self.number, os.strerror(self.number))

    def pwritev(self, fd: int, buffers: Any, offset: int) -> int:
        self._fail("pwritev")
        return super().pwritev(fd, buffers, offset)

    def fsync(self, fd: int) -> None:
        self._fail("fsync")
        super().fsync(fd)

    def rename(self, source: str, target: str) -> None:
        self._fail("rename")
        super().rename(source, target)

    def sync_directory(self, path: str) -> None:
        self._fail("sync_directory")
        super().sync_directory(path)


@pytest.fixture
def disk() -> Iterator[Callable[[Disk], None]]:
    before = durable.current()

    def use(chosen: Disk) -> None:
        durable.use(chosen)

    yield use
    durable.use(before)


@pytest.fixture
def local(service: Callable[..., Any]) -> Any:
    return service(LocalDeliveryService, "local")


def test_the_log_names_the_mailbox_and_the_alias(local: Any, message: Callable[..., Any]) -> None:
    local.handle(message(BODY, TO))
    text = (local.context.paths.logs / "mail.log").read_text()
    assert ": to=<alice@example.org>, relay=local," in text
    assert ": to=<bob>, orig_to=<team@example.org>, relay=local," in text


@pytest.fixture
def mail(tmp_path: Path) -> Callable[[str], list[bytes]]:
    def read(user: str) -> list[bytes]:
        box = tmp_path / "spool" / "mail" / user
        return [path.read_bytes() for folder in ("new", "cur") for path in (box / folder).iterdir()]

    return read


def make(message: Callable[..., Any], body: bytes = BODY, **more: Any) -> Any:
    return message(body, TO, queue="LOCAL", **more)


def test_every_user_has_the_message(local: Any, message: Callable[..., Any], tmp_path: Path,
                                    mail: Callable[[str], list[bytes]],
                                    logged: Callable[[], list[int]]) -> None:
    assert local.handle(make(message)) == Done()
    fields = b"Return-Path: <s@far.test>\r\nDelivered-To: %s\r\n"
    assert mail("alice") == [fields % b"alice@example.org" + BODY]
    assert mail("bob") == [fields % b"team@example.org" + BODY]
    assert not list((tmp_path / "spool/mail/alice/tmp").iterdir())
    assert logged() == [7601, 7608, 7608, 7604]


def test_nasty_bodies_are_kept(local: Any, message: Callable[..., Any], nasty: bytes,
                               mail: Callable[[str], list[bytes]]) -> None:
    assert local.handle(make(message, nasty)) == Done()
    assert mail("alice")[0].partition(b"\r\n")[2].partition(b"\r\n")[2] == nasty


def test_redelivery_writes_nothing_even_after_it_was_read(
        local: Any, message: Callable[..., Any], tmp_path: Path, logged: Callable[[], list[int]],
        mail: Callable[[str], list[bytes]]) -> None:
    local.handle(make(message))
    box = tmp_path / "spool/mail/alice"
    (path,) = (box / "new").iterdir()
    path.rename(box / "cur" / f"{path.name}:2,RS")
    assert local.handle(make(message, redelivered=True)) == Done()
    assert (len(mail("alice")), len(mail("bob"))) == (1, 1)
    assert logged().count(7610) == 2
    assert logged().count(7608) == 4


def test_other_messages_of_the_same_second_have_other_names(
        local: Any, message: Callable[..., Any], mail: Callable[[str], list[bytes]]) -> None:
    local.handle(make(message))
    local.handle(make(message, message_id="ab" * 24))
    assert len(mail("alice")) == 2


@pytest.mark.parametrize(("method", "nth"), [
    ("pwritev", 1), ("pwritev", 4), ("fsync", 1), ("fsync", 2), ("rename", 2),
    ("sync_directory", 1), ("sync_directory", 3), ("sync_directory", 6),
])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_disk_error_defers_and_the_next_try_completes(
        local: Any, message: Callable[..., Any], disk: Callable[[Disk], None], tmp_path: Path,
        mail: Callable[[str], list[bytes]], method: str, nth: int, number: int) -> None:
    disk(FailingDisk(method, nth, number))
    answer = local.handle(make(message))
    assert isinstance(answer, Move)
    (rest,) = answer.new  # the other mailbox has its mail
    assert rest.delay_s == local.context.settings.local_retry_s
    assert rest.properties["mail.to.LOCAL"] in ("alice", "bob")
    assert len(mail("alice")) + len(mail("bob")) == 1
    again = message(BODY, rest.properties, queue="LOCAL", message_id="ef" * 24, put_time_ns=1)
    assert local.handle(again) == Done()
    assert local.handle(make(message, defers=1)) == Done()  # it was deferred whole once
    assert (len(mail("alice")), len(mail("bob"))) == (1, 1)
    assert not list((tmp_path / "spool/mail/bob/tmp").iterdir())


def test_a_lone_mailbox_that_cannot_be_written_defers_its_message(
        local: Any, message: Callable[..., Any], disk: Callable[[Disk], None]) -> None:
    disk(FailingDisk("fsync", 1, errno.ENOSPC))
    answer = local.handle(message(BODY, {"mail.to.LOCAL": "alice"}, queue="LOCAL"))
    assert isinstance(answer, Defer)
    assert answer.seconds == local.context.settings.local_retry_s
    assert "full" in answer.reason


def test_a_mailbox_that_stays_bad_is_reported_in_time(
        local: Any, message: Callable[..., Any], disk: Callable[[Disk], None]) -> None:
    """The time counts from the arrival of the mail, not from the message that was split off."""
    disk(FailingDisk("fsync", 1))
    rest = local.handle(make(message)).new[0].properties
    disk(FailingDisk("fsync", 1))
    answer = local.handle(message(BODY, rest, queue="LOCAL", put_time_ns=2 * 10**18))
    assert isinstance(answer, Move)
    assert answer.new[0].queues == ("ERRMGR",)
    assert answer.new[0].properties["error.to"] == "alice@example.org"


def test_a_name_whose_folder_was_not_synced_does_not_count(
        local: Any, message: Callable[..., Any], disk: Callable[[Disk], None],
        mail: Callable[[str], list[bytes]]) -> None:
    local.handle(make(message))  # makes the mailboxes
    disk(FailingDisk("sync_directory", 1))
    answer = local.handle(make(message, message_id="cd" * 24))
    assert isinstance(answer, Move)
    assert answer.new[0].properties["mail.to.LOCAL"] == "alice"
    assert (len(mail("alice")), len(mail("bob"))) == (1, 2)


def test_what_a_killed_delivery_left_is_removed(local: Any, message: Callable[..., Any],
                                                tmp_path: Path) -> None:
    box = Maildir(tmp_path / "spool/mail", "alice")
    box.create()
    first = make(message, redelivered=True)
    name = file_name(first.message_id, "alice", first.put_time_ns)
    (box.path / "tmp" / f"{name}.1").write_bytes(b"half")
    (box.path / "tmp" / "other").write_bytes(b"not ours")
    assert local.handle(first) == Done()
    assert [path.name for path in (box.path / "tmp").iterdir()] == ["other"]


def test_impossible_names_go_to_the_error_manager(local: Any, message: Callable[..., Any],
                                                  mail: Callable[[str], list[bytes]]) -> None:
    properties = TO | {"mail.to.LOCAL": "../../etc\nbob", "mine": "kept"}
    answer = local.handle(message(BODY, properties, queue="LOCAL", priority=1))
    assert isinstance(answer, Move)
    (new,) = answer.new
    assert (answer.queues, new.queues, new.priority, new.body) == ((), ("ERRMGR",), 1, BODY)
    assert new.properties["error.to"] == "alice@example.org"
    assert new.properties["error.status"] == "5.1.1"
    assert (new.properties["mail.from"], new.properties["mine"]) == ("s@far.test", "kept")
    assert len(mail("bob")) == 1


def test_mailboxes_are_made_only_where_that_is_wanted(service: Callable[..., Any],
                                                      message: Callable[..., Any]) -> None:
    local = service(LocalDeliveryService, "local", maildir_create=False)
    answer = local.handle(make(message))
    assert isinstance(answer, Move)
    assert answer.new[0].properties["error.to"] == "alice@example.org\nteam@example.org"
    assert not list(local.root.iterdir())


def test_after_the_expiry_the_sender_is_told(local: Any, message: Callable[..., Any],
                                             disk: Callable[[Disk], None]) -> None:
    local.handle(make(message))
    disk(FailingDisk("pwritev", 1, errno.ENOSPC))
    answer = local.handle(make(message, message_id="ef" * 24, defers=3))
    assert isinstance(answer, Move)
    assert answer.new[0].properties["error.status"] == "4.2.2"
    assert answer.new[0].properties["error.to"] == "alice@example.org"


def test_a_message_put_by_hand_needs_only_recipients(local: Any, message: Callable[..., Any],
                                                     mail: Callable[[str], list[bytes]]) -> None:
    assert local.handle(message(BODY, {"mail.to": "Alice@here"}, queue="LOCAL")) == Done()
    assert len(mail("alice")) == 1
    answer = local.handle(message(BODY, {}, queue="LOCAL"))
    assert isinstance(answer, Move)


def test_fields_cannot_be_forged() -> None:
    assert delivery_fields("a\r\nX: y", "b\n\nc").count(b"\r\n") == 2


@pytest.mark.parametrize("user", ["", ".", "..", "a/b", "/a", "a\x00", "a..b", ".a", "-a", "é",
                                  "x" * 65, "a b", "a\n", "İ"])
def test_names_that_are_no_mailbox(user: str) -> None:
    with pytest.raises(BadName):
        mailbox_name(user)


@given(st.text(max_size=70))
def test_a_mailbox_name_is_one_safe_path_component(user: str) -> None:
    try:
        name = mailbox_name(user)
    except BadName:
        return
    assert name == user.lower()
    assert Path("/root") / name == Path(f"/root/{name}").resolve()
    assert name not in ("", ".", "..")


class CountingDisk(Disk):
    """Counts syncs, and files whose writing was begun when the first of them was synced."""

    def __init__(self) -> None:
        self.files = self.folders = self.begun = 0

    def begin_write(self, fd: int) -> None:
        self.begun += not self.files
        super().begin_write(fd)

    def fsync(self, fd: int) -> None:
        self.files += 1
        super().fsync(fd)

    def sync_directory(self, path: str) -> None:
        self.folders += 1
        super().sync_directory(path)


def test_a_batch_syncs_each_folder_once(
        local: Any, message: Callable[..., Any], disk: Callable[[Disk], None],
        mail: Callable[[str], list[bytes]]) -> None:
    local.handle(make(message))  # makes the mailboxes
    counting = CountingDisk()
    disk(counting)
    batch = [make(message, message_id=f"{n:048x}") for n in range(8)]
    assert local.handle_many(batch) == [Done()] * 8
    assert (counting.begun, counting.files, counting.folders) == (16, 16, 2)
    assert (len(mail("alice")), len(mail("bob"))) == (9, 9)


def test_what_a_process_with_this_pid_left_is_written_anew(
        local: Any, message: Callable[..., Any], tmp_path: Path,
        mail: Callable[[str], list[bytes]]) -> None:
    local.handle(make(message))
    new, root = make(message, message_id="7" * 48), tmp_path / "spool" / "mail"
    name = file_name("7" * 48, "alice", new.put_time_ns)
    (root / "alice" / "tmp" / f"{name}.{os.getpid()}").write_bytes(b"half of another")
    assert local.handle(new) == Done()
    assert all(each.endswith(BODY) for each in mail("alice"))
    assert not os.listdir(root / "alice" / "tmp")


def test_one_bad_message_of_a_batch_is_its_own_matter(
        local: Any, message: Callable[..., Any], disk: Callable[[Disk], None],
        mail: Callable[[str], list[bytes]]) -> None:
    disk(FailingDisk("pwritev", 3))
    batch = [message(BODY, {"mail.to.LOCAL": user}, queue="LOCAL", message_id=f"{n:048x}")
             for n, user in enumerate(("alice", "alice", "alice", "../x"))]
    answers = local.handle_many(batch)
    assert [type(each) for each in answers] == [Done, Defer, Done, Move]
    assert len(mail("alice")) == 2


def test_an_unsynced_folder_fails_all_of_its_batch(
        local: Any, message: Callable[..., Any], disk: Callable[[Disk], None],
        mail: Callable[[str], list[bytes]]) -> None:
    local.handle(make(message))
    disk(FailingDisk("sync_directory", 1))
    batch = [message(BODY, {"mail.to.LOCAL": user}, queue="LOCAL", message_id=f"{n:048x}")
             for n, user in enumerate(("alice", "bob", "alice"))]
    assert [type(each) for each in local.handle_many(batch)] == [Defer, Done, Defer]
    assert (len(mail("alice")), len(mail("bob"))) == (1, 2)
