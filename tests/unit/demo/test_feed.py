"""The feeder against a scripted server: what it repeats, gives up, and calls in doubt."""

from __future__ import annotations

import itertools
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.demo.feed import Feed
from tests.demo.generator import generate
from tests.demo.mails import Sent, is_unknown, store
from tests.demo.sink import sink_process
from tests.demo.transaction import double_dots

# Given the command word and how often it came so far: the reply, or None to hang up.
Script = Callable[[str, int], str | None]

REPLIES = {"DATA": "354 go on", ".": "250 accepted", "QUIT": "221 bye"}


@pytest.fixture(autouse=True, params=["250 test", "250-test\r\n250 PIPELINING"])
def greeting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them with a round trip for each command, and with all commands in one piece."""
    monkeypatch.setitem(REPLIES, "EHLO", request.param)


class Server(socketserver.ThreadingTCPServer):
    """An SMTP server that answers as its script says and keeps the texts it got."""

    daemon_threads = True

    def __init__(self, script: Script) -> None:
        super().__init__(("127.0.0.1", 0), Session)
        self.script = script
        self.texts: list[bytes] = []
        self.commands: list[str] = []

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.server_address[:2]
        return str(host), int(port)

    def answer(self, word: str) -> str | None:
        times = self.commands.count(word)
        self.commands.append(word)
        return self.script(word, times)


class Session(socketserver.StreamRequestHandler):
    """One connection."""

    server: Server

    def handle(self) -> None:
        self.wfile.write(b"220 test\r\n")
        for line in self.rfile:
            word = line.split(b":")[0].split()[0].decode().upper()
            reply = self.say(word)
            if reply == REPLIES["DATA"]:
                lines = []
                while (read := self.rfile.readline()) not in (b".\r\n", b""):
                    lines.append(read)
                if not read:
                    return  # a client that has nothing to say leaves
                self.server.texts.append(b"".join(lines))
                reply = self.say(".")
            if reply is None or word == "QUIT":
                return

    def say(self, word: str) -> str | None:
        reply = self.server.answer(word)
        if reply is not None:
            self.wfile.write(reply.encode() + b"\r\n")
        return reply


@contextmanager
def serving(script: Script) -> Iterator[Server]:
    with Server(script) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def usual(word: str) -> str:
    return REPLIES.get(word, "250 ok")


@pytest.fixture
def items(tmp_path: Path) -> list[Sent]:
    plain = (mail for mail in generate(2, 200) if mail.origin == "plain")
    several = (mail for mail in plain if len(mail.recipients) > 1)
    return store(itertools.islice(several, 3), tmp_path)


def fed(server: Server, items: list[Sent]) -> Feed:
    feed = Feed(server.address, items, connections=1)
    feed.start()
    feed.join()
    return feed


def test_everything_is_accepted_once(items: list[Sent]) -> None:
    with serving(lambda word, times: usual(word)) as server:
        feed = fed(server, items)
    counts = feed.counts()
    assert (counts.accepted, counts.finished, counts.postponed) == (3, 3, 0)
    assert server.texts == [double_dots(item.read())[:-3] for item in items]
    assert not feed.running


@pytest.mark.parametrize("word", ["EHLO", "MAIL", "RCPT", "."])
def test_a_4xx_reply_is_tried_again(items: list[Sent], word: str) -> None:
    def script(given: str, times: int) -> str:
        return "451 later" if given == word and times < 2 else usual(given)

    with serving(script) as server:
        counts = fed(server, items).counts()
    assert counts.accepted == 3 and counts.in_doubt == 0
    if word != "EHLO":  # a refused EHLO alone is answered by HELO-less MAIL: SMTP allows it
        assert counts.postponed in (1, 2)  # both may meet recipients of one transaction
        assert "451 later" in counts.reason


def test_connection_lost_before_the_text_is_tried_again(items: list[Sent]) -> None:
    with serving(lambda word, n: None if word == "RCPT" and n == 0 else usual(word)) as server:
        counts = fed(server, items).counts()
    assert (counts.accepted, counts.postponed, counts.in_doubt) == (3, 1, 0)


def test_connection_lost_after_the_text_is_in_doubt_and_sent_again(items: list[Sent]) -> None:
    with serving(lambda word, n: None if word == "." and n == 0 else usual(word)) as server:
        feed = fed(server, items)
    counts = feed.counts()
    assert (counts.accepted, counts.postponed, counts.in_doubt) == (3, 0, 1)
    assert [feed.outcomes[item.demo_id].in_doubt for item in items] == [1, 0, 0]
    assert server.texts[0] == server.texts[1]


@pytest.mark.parametrize("word", ["MAIL", "DATA", "."])
def test_a_5xx_reply_is_final_for_all_recipients(items: list[Sent], word: str) -> None:
    def script(given: str, times: int) -> str:
        return "550 no" if given == word and times == 0 else usual(given)

    with serving(script) as server:
        feed = fed(server, items)
    counts = feed.counts()
    assert (counts.accepted, counts.finished) == (2, 3)
    outcome = feed.outcomes[items[0].demo_id]
    assert not outcome.accepted
    assert outcome.refused == dict.fromkeys(items[0].recipients, "550 no")


def test_one_refused_recipient_does_not_stop_the_others(items: list[Sent]) -> None:
    with serving(lambda word, n: "550 no" if word == "RCPT" and n == 0 else usual(word)) as server:
        feed = fed(server, items)
    outcome = feed.outcomes[items[0].demo_id]
    assert outcome.accepted
    assert list(outcome.refused) == [items[0].recipients[0]]
    assert feed.counts().accepted == 3


def test_stop_ends_a_feed_that_gets_nowhere(items: list[Sent]) -> None:
    with serving(lambda word, times: "451 never" if word == "MAIL" else usual(word)) as server:
        feed = Feed(server.address, items, connections=2)
        feed.start()
        feed.stop()
        feed.join()
        assert not feed.wait_accepted(1)
    assert feed.counts().accepted == 0


def test_wait_accepted(items: list[Sent]) -> None:
    with serving(lambda word, times: usual(word)) as server:
        feed = Feed(server.address, items, connections=2)
        feed.start()
        assert feed.wait_accepted(3)
        assert not feed.wait_accepted(4)
        feed.join()


def test_dots(tmp_path: Path) -> None:
    assert double_dots(b".\r\na.\r\n..\r\n") == b"..\r\na.\r\n...\r\n.\r\n"
    assert double_dots(b"a\r\n") == b"a\r\n.\r\n"


def test_all_kinds_of_mail_reach_a_real_server_unaltered(tmp_path: Path) -> None:
    sent = store(generate(9, 60), tmp_path / "sent")
    with sink_process(tmp_path / "sink", later_share=0.05) as sink:
        feed = Feed(("127.0.0.1", sink.port), sent, connections=3)
        feed.start()
        feed.join()
    counts = feed.counts()
    known = [item for item in sent if not all(map(is_unknown, item.recipients))]
    assert counts.accepted == len(known) > 50
    assert counts.postponed > 0 and counts.in_doubt == 0
    received = [path.read_bytes().partition(b"\n")[2] for path in (tmp_path / "sink").iterdir()]
    assert sorted(received) == sorted(item.read() for item in known)
