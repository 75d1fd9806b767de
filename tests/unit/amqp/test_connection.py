"""Connections, sessions and links of ours with Proton as the peer, in memory: both roles, windows,
credit, deliveries in many frames, states, drains, idle time, ends."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("proton", reason="the extra `amqp`: python-qpid-proton")

from proton import Condition, Delivery, Event, Link

from omq.amqp.connection import HEADER, Connection
from omq.amqp.connection_events import Kind
from omq.amqp.links import Receiver, Sender
from omq.amqp.states import (
    ACCEPTED_STATE,
    FAILED_STATE,
    condition_of,
    fields_of,
    rejected,
    state_bytes,
)
from omq.amqp.states import Condition as OurCondition
from omq.amqp.terminus import Terminus
from omq.format.amqp_performatives import SOURCE, TARGET
from omq.format.amqp_types import Malformed, Symbol
from tests.process.amqp_frames import NULL, OPENED, TRUE, ZERO, attach, frame
from tests.unit.amqp.peers import FRAME_BYTES, Ours, Proton, talk


class Clients:
    """Proton as a client with a session, a link that puts and one that takes; ours serves."""

    def __init__(self, *, piece: int = 1 << 16, **settings: Any) -> None:
        self.theirs, self.ours, self.piece = Proton(), Ours(**settings), piece
        self.theirs.connection.open()
        self.session = self.theirs.connection.session()
        self.session.open()
        self.puts = self.session.sender("puts")
        self.puts.target.address = "Q"
        self.puts.open()
        self.takes = self.session.receiver("takes")
        self.takes.source.address = "Q"
        self.takes.open()
        self.talk()

    def talk(self) -> None:
        talk(self.theirs, self.ours, piece=self.piece)

    def put(self, data: bytes, *, settled: bool = False) -> Any:
        made = self.puts.delivery(f"t{len(self.theirs.told)}")
        self.puts.stream(data)
        self.puts.advance()
        if settled:
            made.settle()
        return made

    def came(self) -> list[tuple[bytes, Any]]:
        """Take what is whole: its bytes and its delivery."""
        link, found = self.receiver, []
        while (delivery := link.current) is not None and not delivery.partial:
            data = b""
            while chunk := link.recv():
                data += chunk
            link.advance()
            found.append((data, delivery))
        return found

    @property
    def receiver(self) -> Receiver:
        return next(each.link for each in self.ours.told if isinstance(each.link, Receiver))

    @property
    def sender(self) -> Sender:
        return self.ours.sender()

    def taken(self) -> list[tuple[bytes, Any]]:
        """What Proton has, whole."""
        found = []
        while (delivery := self.takes.current) is not None and not delivery.partial:
            data = b"" if delivery.aborted else self.takes.recv(1 << 20)
            found.append((data or b"", delivery))
            self.takes.advance()
        return found


@pytest.mark.parametrize("piece", [1, 7, 1 << 16])
def test_a_client_puts_and_takes(piece: int) -> None:
    pair = Clients(piece=piece)
    assert (pair.puts.credit, pair.puts.remote_target.address) == (10, "Q")
    sent = [pair.put(bytes([n]) * size) for n, size in enumerate((1, 100, 3 * FRAME_BYTES))]
    pair.talk()
    got = pair.came()
    assert [data for data, _ in got] == [b"\0", b"\1" * 100, b"\2" * 3 * FRAME_BYTES]
    for _, delivery in got:
        delivery.update(ACCEPTED_STATE)
        delivery.settle()
    pair.takes.flow(3)
    pair.talk()
    assert [(each.remote_state, each.settled) for each in sent] == [(Delivery.ACCEPTED, True)] * 3
    assert pair.sender.credit == 3
    for n in range(2):
        pair.sender.write(pair.sender.delivery(b"%d" % n), b"x" * (1 + n * 3 * FRAME_BYTES))
    pair.talk()
    taken = pair.taken()
    assert [len(data) for data, _ in taken] == [1, 1 + 3 * FRAME_BYTES]
    assert [each.tag for _, each in taken] == ["0", "1"]
    assert pair.sender.credit == 1


def test_neighbours_of_one_state_are_one_frame() -> None:
    pair = Clients()
    for n in range(6):
        pair.put(b"%d" % n)
    pair.talk()
    for n, (_, delivery) in enumerate(pair.came()):
        delivery.update(FAILED_STATE if n == 3 else ACCEPTED_STATE)
        delivery.settle()
    out = pair.ours.take()
    assert out.count(b"\x00\x53\x15") == 3
    pair.theirs.give(out)
    states = [each.remote_state for each in pair.theirs.heard(Event.DELIVERY)[-6:]]
    assert states == [Delivery.ACCEPTED] * 3 + [Delivery.MODIFIED] + [Delivery.ACCEPTED] * 2


def test_a_range_of_two_links_is_told_of_link_by_link() -> None:
    pair = Clients()
    other = pair.session.receiver("more")
    other.source.address = "Q"
    other.open()
    pair.takes.flow(5)
    other.flow(5)
    pair.talk()
    links = [each.link for each in pair.ours.told if each.kind is Kind.ATTACHED][1:]
    for n in (0, 0, 1, 0):
        link = links[n]
        assert isinstance(link, Sender)
        link.write(link.delivery(b"%d" % link.delivery_count), b"x")
    pair.ours.give(pair.theirs.take())
    pair.theirs.give(pair.ours.take())
    pair.ours.give(frame(0x15, TRUE, ZERO, b"\x52\x03", TRUE, b"\x00\x53\x24\x45"))
    said = [[(each.link, each.tag) for each in event.said] for event in pair.ours.heard(Kind.SAID)]
    assert said == [[(links[0], b"0"), (links[0], b"1")], [(links[1], b"0")], [(links[0], b"2")]]


TAGGED = b"\xa0\x01t"
BREAKS: dict[str, list[bytes]] = {
    "nothing": [],
    "another link": [frame(0x14, b"\x52\x01", b"\x52\x03", TAGGED, payload=b"other")],
    "settled": [frame(0x14, ZERO, b"\x52\x03", TAGGED, ZERO, TRUE, payload=b"settled")],
    "a state": [frame(0x14, ZERO, b"\x52\x03", TAGGED, NULL, NULL, NULL, NULL,
                      b"\x00\x53\x24\x45", payload=b"state")],
    "large": [frame(0x14, ZERO, b"\x52\x03", TAGGED, payload=bytes(101))],
    "empty": [frame(0x14, ZERO, b"\x52\x03", TAGGED)],
    "pieces": [frame(0x14, ZERO, b"\x52\x03", TAGGED, ZERO, NULL, TRUE, payload=b"one"),
               frame(0x14, ZERO, payload=b"two")],
    "aborted": [frame(0x14, ZERO, b"\x52\x03", TAGGED, *[NULL] * 6, TRUE, payload=b"gone")],
    "a flow": [frame(0x13, ZERO, b"\x52\x09", ZERO, b"\x52\x09")],
    "a number left out": [frame(0x14, ZERO, b"\x52\x09", TAGGED, payload=b"nine")],
    "a number that is known": [frame(0x14, ZERO, b"\x52\x01", TAGGED, payload=b"again")],
    "the next one is known": [frame(0x14, ZERO, bytes((0x52, n)), TAGGED, payload=b"%d" % n)
                              for n in (4, 3)],
    "no number": [frame(0x14, ZERO, NULL, TAGGED, payload=b"none")],
    "no tag": [frame(0x14, ZERO, b"\x52\x03", NULL, payload=b"none")],
    "nonsense": [frame(0x14, b"\x41", b"\x52\x03", TAGGED, payload=b"x")],
    "the end": [frame(0x18)]}


def came(ours: Ours) -> list[tuple[Any, ...]]:
    """All that has happened but credit: of deliveries their numbers, tags and bytes."""
    found: list[tuple[Any, ...]] = []
    for event in ours.told:
        if event.run is not None:
            found += [(each.link.handle, each.id, each.tag, each.settled, each.outcome, data)
                      for each, data in zip(*event.run[:2], strict=True)]
        elif (delivery := event.delivery) is not None and not delivery.partial:
            data = b"".join(delivery.chunks)
            found.append((delivery.link.handle, delivery.id, delivery.tag, delivery.settled,
                          delivery.outcome, data, *["aborted"] * delivery.aborted))
        elif event.kind in (Kind.FAILED, Kind.CLOSED):
            found.append((event.kind, event.condition))
    return found


@pytest.mark.parametrize("broken", BREAKS)
@pytest.mark.parametrize("piece", [5, 1 << 16])
def test_a_run_is_the_same_deliveries(broken: str, piece: int) -> None:
    """In one event, whatever follows, and however its bytes come. What has the same bytes without
    runs is the same, in the same order, with the same end and the same windows."""
    small = [frame(0x14, ZERO, bytes((0x52, n)), b"\xa0\x01" + bytes((n,)), payload=b"%d" % n)
             for n in range(3)]
    after = frame(0x14, ZERO, b"\x52\x04", TAGGED, payload=b"after")
    data = OPENED + attach(0, "A") + attach(1, "A") + b"".join([*small, *BREAKS[broken], after])
    told = []
    for size in (0, 100):
        ours = Ours(run_bytes_max=size)
        for at in range(0, len(data), piece):
            ours.give(data[at : at + piece])
        runs = [len(each.run.payloads) for each in ours.told if each.run is not None]
        assert bool(runs) == bool(size)
        if size and piece > len(data):
            assert runs[0] == 3
            assert broken not in ("large", "empty", "pieces") or len(runs) == 1, (
                "what follows bytes that nobody took waits with them")
        (session,) = ours.connection.sessions.values()
        link = session.remote_handles[0]
        told.append((came(ours), session.next_incoming, list(session.incoming),
                     link.delivery_count, isinstance(link, Receiver) and link.credit))
    assert told[0] == told[1]


@pytest.mark.parametrize(("credit", "window", "wanted"), [
    (10, 1 << 20, [5]), (3, 1 << 20, [3]), (10, 4 * FRAME_BYTES, [4])])
def test_a_run_is_within_credit_and_window(credit: int, window: int, wanted: list[int]) -> None:
    """What is beyond the credit comes by itself, for its reader to refuse; beyond the window it is
    the end, as before."""
    ours = Ours(run_bytes_max=100, window_bytes=window)
    ours.credit = credit
    ours.give(OPENED + attach(0, "A") + b"".join(
        frame(0x14, ZERO, bytes((0x52, n)), TAGGED, payload=b"x") for n in range(5)))
    runs = [each.run for each in ours.told if each.run is not None]
    assert [len(each.payloads) for each in runs] == wanted
    assert len(ours.heard(Kind.ARRIVED)) == max(0, 5 - credit)
    assert bool(ours.heard(Kind.FAILED)) == (window < 1 << 20)
    session = runs[0].deliveries[0].link.session
    session.settled_run(runs[0].deliveries, ACCEPTED_STATE)
    session.settled_run(runs[0].deliveries, ACCEPTED_STATE)
    assert len(session.incoming) == 5 - wanted[0] - bool(ours.heard(Kind.FAILED))
    if not ours.heard(Kind.FAILED):
        assert ours.take().count(b"\x00\x53\x15") == 1


def test_why_it_was_rejected_is_said() -> None:
    pair = Clients()
    sent = pair.put(b"x")
    pair.talk()
    ((_, delivery),) = pair.came()
    delivery.update(rejected("omq:no", "because ü"))
    delivery.settle()
    pair.talk()
    condition = sent.remote.condition
    assert (condition.name, condition.description) == ("omq:no", "because ü")


@pytest.mark.parametrize(("state", "outcome"), [
    (Delivery.ACCEPTED, 0x24), (Delivery.RELEASED, 0x26), (Delivery.REJECTED, 0x25),
    (Delivery.MODIFIED, 0x27)])
def test_what_a_receiver_says_is_heard(state: Any, outcome: int) -> None:
    pair = Clients()
    pair.takes.flow(5)
    pair.talk()
    for n in range(4):
        pair.sender.write(pair.sender.delivery(b"%d" % n), b"x")
    pair.talk()
    for n, (_, delivery) in enumerate(pair.taken()):
        delivery.local.condition = Condition("a:b", "c")
        delivery.update(state)
        if n != 3:
            delivery.settle()
    pair.talk()
    said = pair.ours.said()
    assert [each.outcome for each in said] == [outcome] * 4
    assert [each.settled for each in said] == [True] * 3 + [False]
    last = said[3]
    if state == Delivery.REJECTED:
        assert condition_of(fields_of(last.fields)[0]) == OurCondition("a:b", "c")
    last.update(ACCEPTED_STATE)
    last.settle()  # the receiver settles second
    pair.talk()
    assert pair.theirs.heard(Event.DELIVERY)[-1].settled
    session = last.link.session
    assert session.outgoing == {} and session.incoming == {}


def test_settled_deliveries_are_in_no_table() -> None:
    pair = Clients()
    pair.put(b"x", settled=True)
    pair.takes.flow(1)
    pair.talk()
    ((_, delivery),) = pair.came()
    assert delivery.settled
    delivery.settle()
    pair.sender.write(pair.sender.delivery(b"1", settled=True), b"y")
    out = pair.ours.take()
    assert b"\x00\x53\x15" not in out, "a settled one was settled again"
    pair.theirs.give(out)
    assert pair.taken()[0][1].settled
    assert pair.sender.session.outgoing == {} and pair.sender.session.incoming == {}


def test_an_aborted_delivery_is_none() -> None:
    pair = Clients()
    made = pair.puts.delivery("a")
    pair.puts.stream(b"x" * 2 * FRAME_BYTES)
    pair.talk()
    made.abort()
    pair.put(b"whole")
    pair.talk()
    aborted = [each.delivery for each in pair.ours.heard(Kind.ARRIVED)
               if each.delivery is not None and each.delivery.aborted]
    assert aborted
    aborted[0].settle()
    assert [data for data, _ in pair.came()] == [b"whole"]
    assert pair.receiver.session._unread == 0
    pair.takes.flow(2)
    pair.talk()
    ours = pair.sender.delivery(b"1")
    pair.sender.write(ours, b"x" * 2 * FRAME_BYTES, more=True)
    pair.talk()
    pair.sender.abort(ours)
    pair.sender.write(pair.sender.delivery(b"2"), b"whole")
    pair.talk()
    got = [each for each in pair.taken() if not each[1].aborted]
    assert [(data, each.tag) for data, each in got] == [(b"whole", "2")]
    assert set(pair.sender.session.outgoing) == {1}


def test_without_credit_nothing_goes() -> None:
    pair = Clients()
    sender = pair.sender
    first, then = sender.delivery(b"1"), sender.delivery(b"2")
    sender.write(first, b"x", more=True)
    sender.write(first, b"y")
    sender.write(then, b"z")
    assert pair.ours.take() == b""
    pair.takes.flow(1)
    pair.talk()
    assert [data for data, _ in pair.taken()] == [b"xy"] and sender.credit == 0
    sender.abort(then)
    last = sender.delivery(b"3")
    sender.write(last, b"last")
    pair.takes.flow(1)
    pair.talk()
    assert [data for data, _ in pair.taken()] == [b"last"]


def test_a_drain_is_answered() -> None:
    pair = Clients()
    pair.takes.drain(5)
    pair.talk()
    assert pair.sender.drain and pair.sender.credit == 5
    pair.sender.write(pair.sender.delivery(b"1"), b"x")
    pair.sender.drained()
    pair.talk()
    assert [data for data, _ in pair.taken()] == [b"x"]
    assert pair.takes.credit == 0 and pair.sender.credit == 0


def test_bytes_that_nobody_takes_close_the_window() -> None:
    pair = Clients(window_bytes=4 * FRAME_BYTES)
    pair.put(b"x" * 20 * FRAME_BYTES)
    pair.talk()
    held = pair.receiver.current
    assert held is not None and len(held.chunks) == 4
    data = b""
    for _ in range(50):
        while chunk := pair.receiver.recv():
            data += chunk
        pair.talk()
    assert data == b"x" * 20 * FRAME_BYTES and not held.partial


def test_what_finds_no_window_of_the_peer_waits_in_order() -> None:
    pair = Clients()
    pair.session.incoming_capacity = 2 * FRAME_BYTES
    pair.takes.flow(10)
    pair.talk()
    session = pair.sender.session
    bodies = [bytes([n]) * 3 * FRAME_BYTES for n in range(3)]
    for n, body in enumerate(bodies):
        pair.sender.write(pair.sender.delivery(b"%d" % n), body)
    pair.theirs.give(pair.ours.take())
    assert [session.remote_window, pair.ours.connection.pending] == [0, session.waiting_bytes]
    assert session.waiting_bytes > 0
    got = b""
    for _ in range(50):
        pair.talk()
        while pair.takes.current is not None:
            got += pair.takes.recv(1 << 20) or b""
            if pair.takes.current.partial:
                break
            pair.takes.advance()
    assert got == b"".join(bodies) and not session.waiting and not session.waiting_bytes


def test_credit_counts_from_where_the_receiver_was() -> None:
    """It gave it before it knew of what is on its way."""
    pair = Clients()
    sender = pair.sender
    for seen, credit, ahead, left in ((0, 5, 3, 2), (0, 2, 3, 0), (3, 2, 3, 2), (-1, 4, 3, 4),
                                      (0xFFFFFFFF, 3, 1, 1), (0, 0xFFFFFFFF, 0, 0xFFFFFFFF)):
        sender.delivery_count = ahead
        sender.flowed(seen, credit, drain=False)
        assert sender.credit == left


def test_a_link_that_is_ended_forgets_what_is_under_way() -> None:
    pair = Clients(window_bytes=4 * FRAME_BYTES)
    pair.put(b"x" * 3 * FRAME_BYTES)
    pair.takes.flow(2)
    pair.talk()
    pair.sender.write(pair.sender.delivery(b"1"), b"x")
    session = pair.sender.session
    pair.receiver.close(OurCondition("omq:away", "gone"))
    pair.sender.close()
    pair.talk()
    assert pair.puts.remote_condition.name == "omq:away"
    assert [len(session.incoming), len(session.outgoing), session._unread] == [0, 0, 0]
    pair.puts.close()
    pair.takes.close()
    pair.talk()
    assert session.handles == {} and session.remote_handles == {}
    again = pair.session.sender("again")
    again.target.address = "Q"
    again.open()
    pair.talk()
    assert again.credit == 10


def test_sessions_and_connections_end() -> None:
    pair = Clients()
    pair.session.close()
    pair.talk()
    assert pair.ours.connection.sessions == {}
    pair.theirs.connection.condition = Condition("a:b", "c")
    pair.theirs.connection.close()
    pair.talk()
    closed = pair.ours.heard(Kind.CLOSED)
    assert [each.condition for each in closed] == [OurCondition("a:b", "c")]
    assert pair.ours.connection.finished and pair.ours.take() == b""


def test_our_end_says_why() -> None:
    pair = Clients()
    pair.ours.connection.close(OurCondition("amqp:connection:forced", "come again"))
    pair.put(b"on its way")
    pair.talk()
    assert pair.theirs.connection.remote_condition.name == "amqp:connection:forced"
    assert pair.ours.heard(Kind.ARRIVED) == [] and not pair.ours.connection.finished
    pair.theirs.connection.close()
    pair.talk()
    assert pair.ours.connection.finished


def test_ours_is_a_client_too() -> None:
    ours, theirs = Ours(), Proton(server=True)
    ours.connection.open()
    session = ours.connection.session()
    session.open(1 << 20)
    sender, receiver = session.sender("s"), session.receiver("r")
    for link in (sender, receiver):
        link.open()
    receiver.flow(5)
    talk(ours, theirs)
    links: list[Link] = theirs.heard(Event.LINK_REMOTE_OPEN)
    for each in links:
        each.open()
        if each.is_receiver:
            each.flow(5)
    talk(ours, theirs)
    assert [each.link for each in ours.heard(Kind.ATTACHED)] in (
        [sender, receiver], [receiver, sender])
    assert sender.credit == 5
    sender.write(sender.delivery(b"t"), b"hello")
    back = next(each for each in links if each.is_sender)
    assert back.credit == 5
    back.delivery("u")
    back.send(b"there")
    back.advance()
    talk(ours, theirs)
    found = theirs.heard(Event.DELIVERY)[-1]
    assert found.link.recv(100) == b"hello"
    found.update(Delivery.ACCEPTED)
    found.settle()
    assert receiver.recv() == b"there"
    talk(ours, theirs)
    assert ours.said()[-1].settled
    ours.connection.close()
    talk(ours, theirs)
    theirs.connection.close()
    talk(ours, theirs)
    assert ours.connection.finished


def test_signs_of_life_go_in_time_and_silence_ends_it() -> None:
    pair = Clients(idle_s=10.0)
    connection = pair.ours.connection
    assert pair.theirs.engine.remote_idle_timeout == 5.0
    connection.remote_idle_s = 4.0
    connection.tick(100.0)
    connection.tick(101.0)
    assert connection.take() == b""
    connection.tick(102.0)
    assert connection.take() == b"\0\0\0\x08\x02\0\0\0"
    connection.tick(103.0)
    connection.tick(109.0)
    assert b"\x00\x53\x18" not in connection.take()
    connection.tick(111.0)
    assert b"local-idle-timeout" in connection.take()
    assert [each.kind for each in iter(connection.event, None)] == [Kind.FAILED]


def test_a_header_is_answered_at_once() -> None:
    connection = Connection(max_frame_size=FRAME_BYTES)
    connection.receive(HEADER[:3])
    assert connection.take() == b""
    connection.receive(HEADER[3:])
    assert connection.take() == HEADER


def test_what_a_link_says_may_make_no_sense() -> None:
    pair = Clients()
    link = pair.receiver
    for raw in ((b"\x41", b"", b""), (b"", b"\x00\x53\x28\x45", b""), (b"", b"", b"\x41"),
                (b"", b"", b"\xc1\x05\x02\xa1\x02\xb2\xb2")):
        link._raw = raw
        with pytest.raises(Malformed):
            link.read()


def sizes(data: bytes) -> list[tuple[int, int]]:
    """Performative and size of each frame behind the header."""
    found, data = [], data.removeprefix(HEADER)
    while data:
        size = int.from_bytes(data[:4], "big")
        found.append((data[10] if size > 8 else 0, size))
        data = data[size:]
    return found


@pytest.mark.parametrize("large", ["nothing", "source", "name"])
def test_no_frame_is_larger_than_the_peer_takes(large: str) -> None:
    """Of 512 bytes, with reasons, states, and links that are to be said back and are longer: a
    reason is cut, a link that cannot be answered ends with the condition of the standard."""
    theirs, ours = Connection(max_frame_size=1 << 16), Ours()
    ours.connection.properties = {Symbol("product"): "p" * 600}
    theirs.open()
    # Ours said its open before it heard of 512: what it says first has no more either.
    said = theirs.take().replace(b"\x70\x00\x01\x00\x00", b"\x70\x00\x00\x02\x00", 1)
    ours.give(said)
    theirs.receive(answers := ours.take())
    while theirs.event() is not None:
        pass
    session = theirs.session()
    session.open(1 << 20)
    link = session.receiver("n" * 600 if large == "name" else "link")
    link.source = Terminus(SOURCE, ["A" * (600 if large == "source" else 1)])
    link.target = Terminus(TARGET, [None])
    link.open()

    def talked() -> None:
        nonlocal answers
        while (data := theirs.take()) or ours.connection.pending or ours.connection.dirty:
            ours.give(data)
            answers += (more := ours.take())
            theirs.receive(more)
            while (event := theirs.event()) is not None:
                delivery: Any = event.delivery
                if event.kind is Kind.ARRIVED and not delivery.partial:
                    delivery.say(rejected("amqp:internal-error", "r" * 600))

    talked()
    if large == "nothing":
        link.flow(2)
        talked()
        sender = ours.sender()
        for tag in (b"1", b"2"):
            sender.write(sender.delivery(tag), b"x" * 2000)
        talked()
        states = ours.said()
        assert len(states) == 2
        for each in states:  # said back, as to one that settles second
            sender.session.outgoing[each.id] = each
            each.settled = each.over = False
            each.update(state_bytes(each.outcome, each.fields))
            each.settle()
        sender.close(OurCondition("amqp:internal-error", "\u20ac" * 300))
        talked()
        assert link.remote_condition is not None
        assert link.remote_condition.name == "amqp:internal-error"
        assert set(link.remote_condition.description) == {"\u20ac"}
    elif large == "name":
        assert session.remote_condition is not None
        assert session.remote_condition.name == "amqp:frame-size-too-small"
    else:
        assert link.remote_condition is not None
        assert link.remote_condition.name == "amqp:frame-size-too-small"
    ours.connection.close(OurCondition("amqp:internal-error", "r" * 600))
    talked()
    answers += ours.take()
    assert max(size for _, size in sizes(answers)) <= 512, sizes(answers)
