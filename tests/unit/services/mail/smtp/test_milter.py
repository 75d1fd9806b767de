"""Milters: what each stage says, what each change does, what hostile and absent ones cost."""

from __future__ import annotations

import smtplib
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from omq.services.mail.milter_packets import MilterWrong, reply
from omq.services.mail.smtp_milters import without_ours
from tests.unit.services.mail.smtp.conftest import Running
from tests.unit.services.mail.smtp.milters import CONTINUE, TestMilter, header, packet
from tests.waiting import until

TEXT = b"Subject: s\r\nX-One: 1\r\nX-One: 2\r\n\r\nhello\r\n"
Ask = Callable[..., tuple[Running, list[TestMilter]]]


@pytest.fixture
def asked(server: Callable[..., Running]) -> Iterator[Ask]:
    """asked(milter...): a server that asks these."""
    made: list[TestMilter] = []

    def start(*milters: TestMilter, **settings: Any) -> tuple[Running, list[TestMilter]]:
        made.extend(milters)
        return server(smtp_milters=" ".join(each.place for each in milters),
                      **{"smtp_milter_timeout_s": 30, **settings}), list(milters)

    yield start
    for each in made:
        each.close()


def send(running: Running, *to: str, text: bytes = TEXT, sender: str = "s@x.test") -> str:
    """The reply, of a refusal too."""
    with running.client() as line:
        try:
            line.sendmail(sender, to or ("a@here.test",), text)
        except smtplib.SMTPResponseException as error:
            said = error.smtp_error
            return f"{error.smtp_code} {said.decode() if isinstance(said, bytes) else said}"
        except smtplib.SMTPRecipientsRefused as refused:
            return "; ".join(f"{code} {text.decode()}" for code, text in
                             refused.recipients.values())
    return "250"


def body(running: Running) -> bytes:
    """Of the only mail, without our Received field."""
    (put,) = running.manager.puts
    return put[1][put[1].index(b"Subject"):] if b"Subject" in put[1] else put[1]


def test_all_stages_with_their_macros(asked: Ask) -> None:
    running, (milter,) = asked(TestMilter())
    assert send(running, "a@here.test", "b@here.test") == "250"
    until(lambda: milter.told(b"Q"))
    stages = b"".join(command for command, _ in milter.seen)
    assert stages == b"ODCDHDMDRDRDTLLLNBDEQ"
    assert milter.told(b"C") == [b"[127.0.0.1]\x004\x00\x00127.0.0.1\x00"]
    assert milter.told(b"H") == [b"client.test\0"]
    assert milter.told(b"M")[0].startswith(b"<s@x.test>\0")
    assert milter.told(b"R") == [b"<a@here.test>\0", b"<b@here.test>\0"]
    assert milter.told(b"L")[0] == b"Subject\0s\0" and milter.told(b"B") == [b"hello\r\n"]
    mail_id = running.manager.puts[0][3]["mail.id"].encode()
    assert any(data.startswith(b"Mi\0" + mail_id) for data in milter.told(b"D"))
    assert body(running) == TEXT


def test_what_is_not_wanted_is_not_sent(asked: Ask) -> None:
    steps = 0x1 | 0x2 | 0x8 | 0x10 | 0x200 | 0x80 | 0x100000  # and no answer to a header
    running, (milter,) = asked(TestMilter(steps=steps, silent=b"L"))
    assert send(running, text=b"Subject:s\r\n\r\nx\r\n") == "250"
    until(lambda: milter.told(b"Q"))
    assert b"".join(each for each, _ in milter.seen if each != b"D") == b"OMLNEQ"
    assert milter.told(b"L") == [b"Subject\0s\0"]


def test_leading_space_is_kept_where_it_is_wanted(asked: Ask) -> None:
    running, (milter,) = asked(TestMilter(steps=0x100000))
    assert send(running, text=b"Subject:  two\r\n\tfolded\r\n\r\nx\r\n") == "250"
    assert milter.told(b"L") == [b"Subject\0  two\n\tfolded\0"]


def test_changes_of_header_body_and_envelope(asked: Ask) -> None:
    running, _ = asked(TestMilter(says={b"E": b"".join((
        header(b"h", "X-New", "new\n folded"), header(b"i", "X-First", "first", 0),
        header(b"m", "x-one", "changed", 2), header(b"m", "X-One", "", 1),
        header(b"m", "X-None", "added", 7), packet(b"bnew "), packet(b"bbody\r\n"),
        packet(b"e<new@x.test>\0"), packet(b"+<more@here.test>\0"), packet(b"-<a@here.test>\0"),
        packet(CONTINUE)))}), smtp_straight=False)
    assert send(running, "a@here.test", "b@here.test") == "250"
    ((_, text, _, properties),) = running.manager.puts
    head = text.index(b"X-First")
    assert text[head:] == (b"X-First: first\r\nSubject: s\r\nx-one: changed\r\n"
                           b"X-New: new\r\n folded\r\nX-None: added\r\n\r\nnew body\r\n")
    assert properties["mail.from"] == "new@x.test"
    assert properties["mail.to"] == "b@here.test\nmore@here.test"


def test_a_value_cannot_begin_another_field(asked: Ask) -> None:
    running, _ = asked(TestMilter(says={b"E": header(b"h", "X", "a\r\nBcc: b\n\nbody\0"[:-1]) +
                                        packet(b"a")}))
    assert send(running) == "250"
    assert b"\r\nX: a\r\n\tBcc: b\r\n\tbody\r\n\r\nhello" in body(running)


@pytest.mark.parametrize("stage", [b"C", b"H", b"M", b"R", b"T", b"L", b"N", b"B", b"E"])
@pytest.mark.parametrize(("answer", "said"), [
    (b"r", "550 5.7.1"), (b"t", "451 4.7.1"), (b"y554 5.7.9 in its words 100%%\0", "554 5.7.9 in")])
def test_a_refusal_at_each_stage(asked: Ask, stage: bytes, answer: bytes, said: str) -> None:
    running, _ = asked(TestMilter(says={stage: packet(answer)}))
    assert send(running).startswith(said)
    assert not running.manager.puts


def test_a_refusal_counts_whatever_else_was_wanted(asked: Ask) -> None:
    running, _ = asked(TestMilter(says={b"E": packet(b"+<a b>\0") + packet(b"r")}))
    assert send(running).startswith("550 5.7.1 refused by a filter")


def test_a_refused_recipient_is_its_own_matter(asked: Ask) -> None:
    milter = TestMilter()
    running, _ = asked(milter, smtp_straight=False)
    with running.client() as line:
        line.ehlo()
        line.mail("s@x.test")
        milter.says[b"R"] = packet(b"r")
        assert line.rcpt("a@here.test")[0] == 550
        del milter.says[b"R"]
        assert line.rcpt("b@here.test")[0] == 250
        assert line.data(TEXT)[0] == 250
    assert running.manager.puts[0][3]["mail.to"] == "b@here.test"


@pytest.mark.parametrize("stage", [b"M", b"R", b"N", b"E"])
def test_discard_is_taken_and_gone(asked: Ask, stage: bytes) -> None:
    running, _ = asked(TestMilter(says={stage: packet(b"d")}))
    assert send(running) == "250"
    assert not running.manager.puts


def test_without_recipients_it_is_gone(asked: Ask) -> None:
    running, _ = asked(TestMilter(says={b"E": packet(b"-a@here.test\0") + packet(b"a")}))
    assert send(running) == "250" and not running.manager.puts


def test_quarantine_holds_it_on_defer(asked: Ask) -> None:
    running, _ = asked(TestMilter(says={b"E": packet(b"qa virus\r\nX: y\0") + packet(b"a")}))
    assert send(running) == "250"
    ((queue, _, _, properties),) = running.manager.puts
    assert queue == "DEFER" and properties["mail.held"].startswith("a virus")
    assert "\n" not in properties["mail.held"] and properties["mail.to"] == "a@here.test"


def test_accept_asks_nothing_more_and_the_next_is_asked(asked: Ask) -> None:
    running, (first, second) = asked(
        TestMilter(says={b"M": packet(b"a")}),
        TestMilter(says={b"E": header(b"h", "X-Second", "yes") + packet(b"c")}))
    assert send(running) == "250"
    assert not first.told(b"R") and not first.told(b"E")
    assert b"X-Second: yes" in body(running) and second.told(b"R")


def test_the_second_sees_what_the_first_made(asked: Ask) -> None:
    running, (_, second) = asked(
        TestMilter(says={b"E": header(b"i", "X-First", "1", 0) + packet(b"bnew\r\n") +
                         packet(b"c")}), TestMilter())
    assert send(running) == "250"
    assert second.told(b"L")[0] == b"X-First\x001\0" and second.told(b"B") == [b"new\r\n"]


def test_progress_gives_time_and_skip_ends_the_body(asked: Ask) -> None:
    running, (milter,) = asked(TestMilter(steps=0x400, says={
        b"B": packet(b"s"), b"E": packet(b"p") * 3 + packet(b"c")}))
    assert send(running, text=b"Subject: s\r\n\r\n" + (b"x" * 70 + b"\r\n") * 1000) == "250"
    assert len(milter.told(b"B")) == 1


WRONG = {
    "too long": struct.pack("!I", 1 << 30) + b"c", "empty": struct.pack("!I", 0),
    "half": struct.pack("!I", 100) + b"ch", "unknown": packet(b"?"),
    "change too early": header(b"h", "X", "y"), "no reply": packet(b"y250 2.0.0 ok\0"),
    "empty reply": packet(b"y\0"), "progress without end": packet(b"p") * 20,
    "skip that was not offered": packet(b"s")}
WRONG_AT_THE_END = {
    "header without value": packet(b"hX\0"), "name with a space": header(b"h", "X Y", "z"),
    "name with a line": header(b"h", "X\r\nY", "z"), "no index": packet(b"m\0\0"),
    "no address": packet(b"+<a b>\0"), "an injection": packet(b"e<a@b>\r\nRCPT TO:<x@y>\0"),
    "no end": packet(b"qwhy"), "endless changes": header(b"h", "X", "y") * 1001 + packet(b"c"),
    "a body without end": packet(b"b" + b"x" * 900_000) * 40,
    "endless reasons": packet(b"q\0") * 1001 + packet(b"c")}


@pytest.mark.parametrize(("default", "said"), [
    ("tempfail", "451"), ("reject", "550"), ("accept", "250")])
@pytest.mark.parametrize("wrong", [*WRONG, *WRONG_AT_THE_END])
def test_what_cannot_be_is_the_default_action(asked: Ask, wrong: str, default: str, said: str
                                              ) -> None:
    if wrong in WRONG:
        says = {b"M": WRONG[wrong]}
    else:
        says = {b"E": header(b"h", "X-Not", "done") + WRONG_AT_THE_END[wrong] + packet(b"a")}
    milter = TestMilter(says=says)
    running, _ = asked(milter, smtp_milter_default=default, smtp_milter_timeout_s=1)
    assert send(running).startswith(said)
    if said == "250":
        assert body(running) == TEXT, "nothing that it wanted is done"
    else:
        assert not running.manager.puts
    log = running.context.paths.event_log.read_text()
    assert "1519" in log and milter.place in log


def test_a_body_in_very_many_pieces_is_one_change(asked: Ask) -> None:
    pieces = packet(b"b" + b"xyz\r\n") * 3000 + packet(b"b") * 3000
    milter = TestMilter(says={b"E": pieces + header(b"h", "X-Last", "y") + packet(b"c")})
    running, _ = asked(milter)
    assert send(running).startswith("250")
    assert body(running).endswith(b"X-Last: y\r\n\r\n" + b"xyz\r\n" * 3000)


@pytest.mark.parametrize("version", [1, 7])
def test_a_version_that_is_not_spoken(asked: Ask, version: int) -> None:
    running, _ = asked(TestMilter(version=version))
    assert send(running).startswith("451")


@pytest.mark.parametrize(("default", "said"), [("tempfail", "451 "), ("accept", "250")])
def test_absent_ones(server: Callable[..., Running], default: str, said: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        place = f"inet:127.0.0.1:{gone.getsockname()[1]}"
    running = server(smtp_milters=f"{place} unix:/nowhere", smtp_milter_default=default)
    assert send(running).startswith(said)


def test_a_silent_one(asked: Ask) -> None:
    running, _ = asked(TestMilter(silent=b"E"), smtp_milter_timeout_s=1)
    assert send(running).startswith("451")


def test_a_slow_one_costs_the_others_nothing(asked: Ask) -> None:
    """While one session waits for its filter, another is served from end to end."""
    milter = TestMilter(silent=b"M")
    running, _ = asked(milter)
    slow = running.client()
    slow.ehlo()
    slow.putcmd("MAIL FROM:<slow@x.test>")
    until(lambda: milter.told(b"M"))
    milter.silent = b""
    assert send(running) == "250"
    slow.close()


def test_a_reload_takes_other_milters(asked: Ask) -> None:
    milter = TestMilter(says={b"M": packet(b"r")})
    running, _ = asked(milter)
    with running.client() as line:
        line.ehlo()
        assert line.mail("s@x.test")[0] == 550
        milter.says.clear()
        assert line.mail("s@x.test")[0] == 250, "the refusal left no transaction"
        line.rset()
        assert line.mail("t@x.test")[0] == 250


@pytest.mark.parametrize("own", [False, True])
def test_results_of_strangers_in_our_name_go(server: Callable[..., Running], *, own: bool) -> None:
    text = (b"Authentication-Results: MX.here.test; spf=pass\r\n\tx=y\r\n"
            b"Authentication-Results: other.test; spf=pass\r\nSubject: s\r\n\r\nx\r\n")
    more = {} if own else {"smtp_relay_networks": "192.0.2.0/24"}
    running = server(hostname="mx.here.test", **more)
    assert send(running, text=text) == "250"
    ((_, found, _, _),) = running.manager.puts
    assert (b"MX.here.test" in found) == (b"x=y" in found) == own, "our own hosts may say so"
    assert b"other.test" in found


@pytest.mark.parametrize("value", [
    b"mx.test; none", b' "mx.test" 1; x', b"(a (nested) comment) MX.test.; x",
    b"\r\n mx.test; x", b'"m\\x.test"; x'])
def test_spellings_of_our_name(value: bytes) -> None:
    text = b"A: b\r\nAuthentication-Results:" + value + b"\r\nC: d\r\n\r\nx"
    assert without_ours(text, "mx.test", 1000) == b"A: b\r\nC: d\r\n\r\nx"
    other = b"Authentication-Results: x-mx.test; y\r\n\r\n"
    assert without_ours(other, "mx.test", 1000) is other


@pytest.mark.parametrize(("data", "said"), [
    (b"550 5.7.1 no\0", "550 5.7.1 no"), (b"450 later\0", "450 4.7.1 later"),
    (b"554\0", "554 5.7.1 refused"),
    (b"550-5.7.1 a\r\n550 5.7.1 b\0", "550-5.7.1 a\r\n550 5.7.1 b"),
    (b"550 a\r\n250 b\0", "550-5.7.1 a\r\n550 5.7.1 250 b")])
def test_replies(data: bytes, said: str) -> None:
    assert reply(data) == said
    with pytest.raises(MilterWrong):
        reply(b"2" + data[1:])
