"""uAMQP, Azure's client in C, against amqp.server: run by the system's Python, which has Debian's
python3-uamqp. Arguments: port of amqps, CA file, user, password. The last line says how it went."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uamqp  # type: ignore[import-not-found,unused-ignore]
from uamqp import authentication, constants, errors

COUNT = 50
LARGE = 300_000

port, ca, user, password = int(sys.argv[1]), *sys.argv[2:5]


def auth() -> Any:
    """Each client uses up its own."""
    return authentication.SASLPlain("localhost", user, password, port=port, verify=ca)


def url(queue: str) -> str:
    return f"amqps://localhost:{port}/{queue}"


@contextmanager
def taking(queue: str, credit: int, **options: Any) -> Iterator[Any]:
    """A receiver that settles by what is said of each message."""
    client = uamqp.ReceiveClient(url(queue), auth=auth(), prefetch=credit, auto_complete=False,
                                 **options)
    try:
        yield client
    finally:
        client.close()


def take(client: Any, want: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < want:
        found += client.receive_message_batch(timeout=60_000)
    return found


def body(message: Any) -> bytes:
    return b"".join(message.get_data())


def send() -> None:
    """Durable, unsettled: each is acknowledged when it is on the disk."""
    client = uamqp.SendClient(url("A"), auth=auth())
    try:
        for number in range(COUNT):
            message = uamqp.Message(
                b"%d" % number,
                properties=uamqp.message.MessageProperties(
                    message_id=f"m{number}", correlation_id="c", subject="orders"),
                application_properties={b"number": number})
            message.header = uamqp.message.MessageHeader()
            message.header.durable, message.header.priority = True, 4
            client.queue_message(message)
        states = client.send_all_messages(close_on_done=False)
        assert states == [constants.MessageState.SendComplete] * COUNT, states
        client.queue_message(uamqp.Message(bytes(LARGE)))
        assert client.send_all_messages() == [constants.MessageState.SendComplete]
    finally:
        client.close()


def receive() -> None:
    """In order; released comes again untouched, modified with a failed attempt."""
    with taking("A", 2) as client:
        first, second = take(client, 2)[:2]
        assert (body(first), body(second)) == (b"0", b"1")
        assert first.properties.message_id == b"m0" and first.properties.subject == b"orders"
        assert first.application_properties[b"number"] == 0
        assert first.header.durable and first.header.priority == 4
        first.release()
        second.modify(True, False)  # noqa: FBT003  delivery failed, not undeliverable here
    with taking("A", COUNT + 1) as client:
        found = take(client, COUNT + 1)
        numbers = [int(body(each)) for each in found if len(body(each)) < LARGE]
        assert sorted(numbers) == list(range(COUNT)), numbers
        attempts = {body(each): each.header.delivery_count for each in found}
        assert (attempts[b"0"] or 0, attempts[b"1"]) == (0, 1), attempts
        assert max(map(len, attempts)) == LARGE
        for each in found:
            each.accept()


def refused() -> None:
    """Nobody has a right on C."""
    client = uamqp.SendClient(url("C"), auth=auth())
    try:
        client.queue_message(uamqp.Message(b"x"))
        client.send_all_messages(close_on_done=False)
    except errors.LinkDetach as error:
        assert error.condition == constants.ErrorCodes.UnauthorizedAccess, error
    else:
        raise AssertionError("nobody refused it")
    finally:
        client.close()


send()
receive()
refused()
sys.stdout.write("all of them\n")
