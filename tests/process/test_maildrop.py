"""mail.drop: without a manager, killed at its points, and what users of this host may do to it."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

import omq
from omq.base.errors import (
    BadRequest,
    MaildropFull,
    MessageTooLong,
    NobodyTakesMail,
    NotSubmitter,
    TooManyMails,
)
from omq.base.settings import KEYS, Settings
from omq.cli.queue.sendmail_hand_in import Hand
from omq.services.daemon.options import Location
from omq.services.mail import drop_server
from omq.services.mail.drop_file import decode
from omq.services.mail.drop_protocol import HEAD_BYTES_MAX, Request
from tests.process.instance import MANAGER
from tests.process.trust_world import MEMBER, OTHER, SERVICE, TrustInstance, trust_instance
from tests.waiting import until

DROP = "mail.drop"
TEXT = b"Subject: x\n\nhello\n"
assert drop_server.NAME == DROP  # imported before the fork: see trust_world


@pytest.fixture
def world() -> Iterator[TrustInstance]:
    with trust_instance() as made:
        (made.conf / "queues.conf").write_text("[*]\nattempts_max = 3\n[ROUTER]\n[A]\n[B]\n")
        made.own()
        yield made


def begin(world: TrustInstance, fault: str = "", **settings: object) -> None:
    """mail.drop alone, and it listens."""
    world.settings()
    file = world.conf / "omq.conf"
    for key, value in settings.items():
        text, head = file.read_text(), f"[{KEYS[key].section}]\n"
        line = f"{key} = {value}\n"
        file.write_text(text.replace(head, head + line) if head in text else text + head + line)
    world.own()
    world.fault_log.touch()
    os.chown(world.fault_log, SERVICE, SERVICE)
    world.start(DROP, fault=fault)
    until(lambda: can_connect(world), world.said)


def can_connect(world: TrustInstance) -> bool:
    with socket.socket(socket.AF_UNIX) as one:
        return one.connect_ex(str(world.root / "run/drop.sock")) == 0


def end(world: TrustInstance) -> None:
    world.children[DROP].signal(signal.SIGTERM)
    assert world.children[DROP].wait() == 0, world.said()


def hand(world: TrustInstance) -> Hand:
    from omq.base.paths import SpoolPaths

    return Hand(Location(None, SpoolPaths(world.root), world.conf), Settings(hostname="mx.test"))


def give(world: TrustInstance, text: bytes = TEXT, **request: Any) -> str:
    with hand(world) as one:
        return one.give(Request(len(text), **{"to": ("a@here.test",), **request}), text)


def names(world: TrustInstance) -> list[str]:
    return sorted(each for each in os.listdir(world.root / "maildrop") if each.endswith(".mail"))


def routed(world: TrustInstance) -> list[tuple[str, str]]:
    """(id, sender) of what is on ROUTER."""
    with omq.connect(world.root) as c:
        return [(row.message_id, row.properties["mail.from"]) for row in c.browse("ROUTER")]


def test_mail_waits_for_a_manager_that_is_away(world: TrustInstance) -> None:
    begin(world)
    world.as_user(MEMBER, lambda: give(world), groups=())
    (name,) = names(world)
    found = decode((world.root / "maildrop" / name).read_bytes(), name)
    assert found.uid == MEMBER and found.properties["mail.from"].startswith(f"uid{MEMBER}@")
    assert f"uid {MEMBER}".encode() in found.body, "the kernel's word, in the Received field"
    world.start(MANAGER)
    until(lambda: not names(world), world.said)
    ((mail_id, sender),) = routed(world)
    assert mail_id == found.mail_id and sender == found.properties["mail.from"]


@pytest.mark.parametrize(("point", "copies"), [("drop.after_file", 1), ("drop.after_put", 2)])
def test_a_death_at_each_step_loses_nothing(world: TrustInstance, point: str, copies: int) -> None:
    """After the put and before the removal it comes twice, under one id (see mail.maildrop)."""
    world.start(MANAGER)
    begin(world, fault=f"{point}:kill:1")

    def author() -> None:
        try:
            give(world)
        except NobodyTakesMail:  # it died before it answered
            assert point == "drop.after_file"
    world.as_user(MEMBER, author)
    assert world.children[DROP].wait() == -signal.SIGKILL, world.said()
    begin(world)
    until(lambda: not names(world) and len(routed(world)) == copies, world.said)
    assert len({mail_id for mail_id, _ in routed(world)}) == 1


def test_half_a_mail_is_no_mail(world: TrustInstance) -> None:
    begin(world)

    def dies() -> None:
        with socket.socket(socket.AF_UNIX) as one:
            one.connect(str(world.root / "run/drop.sock"))
            one.sendall(Request(1000, to=("a@here.test",)).encode() + b"half")
    world.as_user(MEMBER, dies)
    world.as_user(MEMBER, lambda: give(world, sender="whole@here.test"))
    assert len(names(world)) == 1


def test_nobody_else_gets_at_the_files(world: TrustInstance) -> None:
    begin(world)
    world.as_user(MEMBER, lambda: give(world))
    (name,) = names(world)

    def attack() -> None:
        for path in (world.root / "maildrop", world.root / "maildrop" / name):
            with pytest.raises(PermissionError):
                os.listdir(path) if path.name == "maildrop" else path.read_bytes()
        with pytest.raises(PermissionError):
            (world.root / "maildrop/x.mail").write_bytes(b"")
        with pytest.raises(PermissionError):
            os.symlink("/etc/shadow", world.root / "maildrop/x.mail")
        with pytest.raises(PermissionError):
            os.unlink(world.root / "run/drop.sock")
    world.as_user(OTHER, attack)


def test_one_user_leaves_half_of_the_room(world: TrustInstance) -> None:
    begin(world, drop_files_max=10, drop_messages_max=0)

    def flood() -> None:
        for number in range(20):
            try:
                give(world)
            except MaildropFull:
                assert number == 5
                return
        raise AssertionError("no limit")
    world.as_user(MEMBER, flood)
    world.as_user(OTHER, lambda: give(world))
    assert len(names(world)) == 6
    give(world)  # root's share is all of it


def test_bytes_have_a_limit_too(world: TrustInstance) -> None:
    begin(world, drop_bytes_max="1 MiB")

    def flood() -> None:
        give(world, text=TEXT + b"x" * 400_000)
        with pytest.raises(MaildropFull, match="drop_bytes_max"):
            give(world, text=TEXT + b"x" * 400_000)
    world.as_user(MEMBER, flood)
    assert len(names(world)) == 1


def test_the_rate_of_a_user(world: TrustInstance) -> None:
    begin(world, drop_messages_max=3, smtp_client_period_s=3600)

    def flood() -> None:
        for _ in range(3):
            give(world)
        with pytest.raises(TooManyMails, match="drop_messages_max"):
            give(world)
    world.as_user(MEMBER, flood)
    world.as_user(OTHER, lambda: give(world))


def test_silent_sessions_are_few_and_end(world: TrustInstance) -> None:
    begin(world, drop_sessions_max=16, drop_timeout_s=1)

    def hold() -> None:
        held = []
        for _ in range(20):
            one = socket.socket(socket.AF_UNIX)
            one.settimeout(60)
            one.connect(str(world.root / "run/drop.sock"))
            held.append(one)
        said = [one.recv(4096) for one in held]  # the time of those that say nothing ends, too
        assert sum(not each for each in said) == 4, said
        assert all(b"drop_sessions_max" in each for each in said if each)
    child = world.begin(MEMBER, hold)
    world.as_user(OTHER, lambda: give(world))
    world.join(child)
    world.as_user(MEMBER, lambda: give(world))


def test_drafts_of_one_user_leave_memory_to_the_others(world: TrustInstance) -> None:
    """His sessions stop in the middle of their mails; others and the owner send theirs."""
    begin(world, smtp_message_bytes_max="1 MiB", smtp_memory_bytes_max="6 MiB",
          drop_sessions_max=32)
    text = b"Subject: x\n\n" + b"x" * 900_000
    (told, tell), (held, hold) = os.pipe(), os.pipe()

    def half_mails() -> None:
        os.close(hold)
        sessions = [socket.socket(socket.AF_UNIX) for _ in range(6)]
        for one in sessions:
            one.settimeout(60)
            one.connect(str(world.root / "run/drop.sock"))
            with suppress(OSError):  # it is refused, and closed
                one.sendall(Request(len(text), to=("a@here.test",)).encode() + text[:-1])
        os.write(tell, b".")
        assert os.read(held, 1) == b""

    child = world.begin(MEMBER, half_mails)
    assert os.read(told, 1) == b"."
    until(lambda: "drafts of one user hold half of the memory" in
          world.paths.event_log.read_text(), world.said)
    world.as_user(OTHER, lambda: give(world, text))
    give(world, text)
    os.close(hold)
    world.join(child)
    for each in (told, tell, held):
        os.close(each)
    world.as_user(MEMBER, lambda: give(world, text))
    assert len(names(world)) == 3


def test_who_may(world: TrustInstance) -> None:
    begin(world, drop_users=f"{OTHER} nobody")

    def refused() -> None:
        with pytest.raises(NotSubmitter):
            give(world)
    world.as_user(MEMBER, refused)
    world.as_user(OTHER, lambda: give(world))
    give(world)


def test_nonsense_is_answered_and_costs_nothing(world: TrustInstance) -> None:
    begin(world, smtp_message_bytes_max="1 MiB", smtp_memory_bytes_max="4 MiB")

    def hostile() -> None:
        for said in (b"\n", b"[]\n", b"{\n", b'{"size": -1}\n', b'{"size": "1"}\n', b"\0\xff\n",
                     b'{"size": 1, "to": "a"}\n', b'{"size": 1, "to": [1]}\n',
                     b'{"size": 1, "sender": 1}\n', b'{"size": 1, "name": {}}\n',
                     b"[" * 9000 + b"\n", b"x" * (HEAD_BYTES_MAX + 10)):
            with socket.socket(socket.AF_UNIX) as one:
                one.settimeout(60)
                one.connect(str(world.root / "run/drop.sock"))
                try:
                    one.sendall(said)
                except OSError:
                    continue  # it has closed already
                try:
                    answer = one.recv(65536)
                except ConnectionResetError:
                    continue  # the same, with bytes of ours unread
                assert json.loads(answer)["status"] == BadRequest.status, said
        with pytest.raises(MessageTooLong):
            give(world, text=b"x" * (2 << 20))
        for wrong in ({"to": ()}, {"to": ("a\nb@here.test",)}, {"sender": "a\r\nb"},
                      {"notify": "ALWAYS"}, {"envid": "a b"}, {"ret": "SOME"},
                      {"to": tuple(f"a{n}@here.test" for n in range(1001))}):
            with pytest.raises(BadRequest):
                give(world, **wrong)
        with hand(world) as one:  # an error of one mail is that one's
            with pytest.raises(BadRequest):
                one.give(Request(1), b"x")
            one.give(Request(len(TEXT), to=("a@here.test",)), TEXT)
    world.as_user(MEMBER, hostile)
    assert len(names(world)) == 1


def test_what_is_no_mail_in_the_maildrop(world: TrustInstance) -> None:
    begin(world)
    give(world)
    give(world)
    end(world)
    first, second = names(world)
    folder = world.root / "maildrop"
    whole = (folder / first).read_bytes()
    (folder / first).write_bytes(whole[:-5])
    (folder / f"{first}.tmp").write_bytes(whole)
    (folder / "README").write_text("by hand")
    (folder / f"{int(first[:20]) + 1:020d}{first[20:]}").write_bytes(whole)
    os.mkfifo(folder / f"{1:020d}-{'a' * 48}.mail")
    world.own()
    world.start(MANAGER)
    begin(world)
    until(lambda: len(routed(world)) == 1, world.said)
    until(lambda: len(os.listdir(world.root / "quarantine")) == 4, world.said)
    assert not (folder / f"{first}.tmp").exists() and (folder / "README").exists()
    log = (world.root / "logs/events.log").read_text()
    assert "README" in log and "checksum" in log and "another name" in log
    assert "not a mail file" in log and (folder / f"{1:020d}-{'a' * 48}.mail").exists()
    assert routed(world)[0][0] in second


def test_a_queue_that_takes_nothing_has_mail_wait(world: TrustInstance) -> None:
    (world.conf / "queues.conf").write_text("[*]\n[ROUTER]\nmax_length = 4 KiB\n[A]\n[B]\n")
    world.own()
    world.start(MANAGER)
    begin(world, reader_refused_retry_s=1)
    give(world, text=TEXT + b"x" * 10_000)
    give(world)
    until(lambda: len(routed(world)) == 1, world.said)
    assert len(names(world)) == 1
    (world.conf / "queues.conf").write_text("[*]\n[ROUTER]\n[A]\n[B]\n")
    world.children[MANAGER].signal(signal.SIGHUP)
    until(lambda: len(routed(world)) == 2 and not names(world), world.said)
    assert "1516" in (world.root / "logs/events.log").read_text()


def test_a_second_one_is_refused(world: TrustInstance) -> None:
    begin(world)
    first = world.children[DROP]
    second = world.start(DROP)
    assert second.wait() != 0
    world.children[DROP] = first
    assert can_connect(world), "the first one goes on"


def test_without_both_nobody_takes_it(world: TrustInstance) -> None:
    begin(world)
    end(world)
    with pytest.raises(NobodyTakesMail, match="omon drop"):
        give(world)
