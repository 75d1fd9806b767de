"""The sending side's connection: bytes over a socket, Proton's engine, one link or several.

One thread uses it. `pump` moves bytes until something happened or the time is over; what happened
is in `told`. A line that is silent for twice the heart-beat, although it was read, or whose other
side says anything that ends it, is ChannelBroken; it is closed then, and a new one has to be made.

Errors, by what the other side says at the end (`ended`): ChannelOutOfStep: people must look.
ChannelRefused: the same will be said again until somebody changes something there. ChannelBroken:
all else; try again.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from proton import (
    Collector,
    Connection,
    Delivery,
    Endpoint,
    Event,
    Link,
    ProtonException,
    Terminus,
    Transport,
    symbol,
)

from omq.base.errors import ChannelBroken, ChannelOutOfStep, ChannelRefused
from omq.services.channel.definition import Channel
from omq.services.channel.greeting import OUT_OF_STEP, Greeting, Hello, answered
from omq.services.channel.security import Credentials
from omq.services.network.tls import secure

_BYTES: Final = 64 * 1024
_OUT_BYTES_MAX: Final = 1024 * 1024
"""What waits in the engine; more is given to it when this has gone."""
_CLOSE_S: Final = 2.0


class AddressRefused(Exception):
    """A foreign peer lets us not put on one of its queues. The next call says if the line ended."""


class Line:
    """See the module. `told`: tags of deliveries, and whether they were accepted."""

    def __init__(self, channel: Channel, found: Credentials, hello: Hello, timeout_s: float
                 ) -> None:
        self._channel, self._hello, self._deadline = channel, hello, time.monotonic() + timeout_s
        self.told: list[tuple[str, bool]] = []
        self._links: dict[str, Link] = {}
        self._refusals: dict[str, str] = {}  # addresses whose links the other side has ended
        self._eof = False
        self._over: ChannelRefused | None = None  # what the next attach, or pump, says
        self._host = ""  # of those of the channel, which answers
        self._due = 0.0  # when the engine wants to look at its clock
        self._collector = Collector()
        self._transport = transport = Transport(Transport.CLIENT)
        self._connection = connection = Connection()
        self.socket = self._connect(found)
        try:
            connection.collect(self._collector)
            connection.container = f"omq-{hello.manager}"
            connection.hostname = self._host
            connection.user, connection.password = found.user or None, found.password or None
            sasl = transport.sasl()
            sasl.allow_insecure_mechs = True  # what may cross it was decided before (security)
            sasl.allowed_mechs(found.mechanism)
            transport.idle_timeout = 2.0 * channel.number("heartbeat")
            transport.bind(connection)
            connection.open()
            self._session = connection.session()
            self._session.open()
            self.greeting = Greeting() if channel.foreign else self._attach_channel()
        except BaseException:
            self.socket.close()
            raise

    def _connect(self, found: Credentials) -> socket.socket:
        """The first host that answers; each has its share of the time that is left. A certificate
        that is not believed is one that does not answer: another member may have a good one."""
        listed = self._channel.addresses
        for i, (host, port) in enumerate(listed):
            left = max(0.1, self._deadline - time.monotonic()) / (len(listed) - i)
            self._host = host
            try:
                return self._dial(host, port, found, left)
            except ssl.SSLCertVerificationError as error:
                failure: Exception = refused(self._channel, f"TLS: {error.verify_message}")
            except OSError as error:
                failure = self.broken(str(error) if len(listed) == 1 else f"{host}: {error}")
        raise failure

    @staticmethod
    def _dial(host: str, port: int, found: Credentials, timeout_s: float) -> socket.socket:
        deadline = time.monotonic() + timeout_s
        line = socket.create_connection((host, port), timeout=timeout_s)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if found.tls is not None:
            line = secure(line, found.tls, host, max(0.1, deadline - time.monotonic()))
        line.settimeout(0.0)
        return line

    # links

    def _attach_channel(self) -> Greeting:
        link = self._session.sender(self._channel.name)
        link.target.address = "SYSTEM.CHANNELS"
        link.source.address = self._channel.name
        said = self._hello.properties(self._channel.name)
        link.properties = {symbol(name): value for name, value in said.items()}
        self._open(link, "")
        try:
            return answered(link)
        except ValueError as error:
            raise refused(self._channel, str(error)) from error

    def attach(self, address: str, timeout_s: float) -> None:
        """A link to a queue of a foreign broker, if it is not there yet. AddressRefused."""
        if address not in self._links and address not in self._refusals:
            self._deadline = time.monotonic() + timeout_s
            link = self._session.sender(f"{self._channel.name} {address}")
            link.target.address = link.source.address = address
            if self._over is not None:
                raise self._over
            try:
                self._open(link, address)
            except ChannelRefused as error:  # there are brokers that end the session for it
                self._over = error
                raise AddressRefused(str(error)) from error
        if reason := self._refusals.pop(address, ""):
            raise AddressRefused(reason)

    def _open(self, link: Link, address: str) -> None:
        link.snd_settle_mode = Link.SND_MIXED
        link.open()
        self._links[address] = link
        self._until(lambda: address in self._refusals or (link.state & Endpoint.REMOTE_ACTIVE and (
            # an answer without a target is the first half of a refusal (2.6.3 of the standard)
            not address or link.remote_target.type != Terminus.UNSPECIFIED or link.credit)))

    def _until(self, true: Callable[[], Any]) -> None:
        while not true():
            left_s = self._deadline - time.monotonic()
            if left_s <= 0:
                raise self.broken("it does not answer in channel_connect_timeout_s")
            self.pump(left_s)

    # messages

    def room(self, address: str = "") -> bool:
        """A message may be given to the engine."""
        return bool(self._links[address].credit > 0
                and max(0, self._transport.pending()) < _OUT_BYTES_MAX)

    def too_long(self, address: str, data: bytes) -> str:
        """Why the other side cannot take a message of this length; an omq has said it before."""
        most = self._links[address].remote_max_message_size if address else 0
        return f"its {len(data)} bytes are over the {most} of {address}" if (
            0 < most < len(data)) else ""

    def send(self, data: bytes, tag: str, *, settled: bool, address: str = "") -> None:
        """A message goes out when the line takes it."""
        link = self._links[address]
        delivery = link.delivery(tag)
        link.send(data)
        if settled:
            delivery.settle()
        link.advance()

    # bytes

    def pump(self, timeout_s: float, wake: int = -1, *, roomy: bool = False) -> None:
        """Until something happened, `wake` is readable, or the time is over; `roomy`: or there is
        room for messages again. ChannelBroken."""
        ends = time.monotonic() + timeout_s
        while True:
            due = self._tick()
            self._write()
            if self._look() or self._eof or (roomy and all(map(self.room, self._links))):
                self._write()
                self._check_end()
                return
            now = time.monotonic()
            poll = select.poll()
            wants = select.POLLIN | (select.POLLOUT if self._transport.pending() > 0 else 0)
            poll.register(self.socket, wants)
            if wake >= 0:
                poll.register(wake, select.POLLIN)
            wait_s = max(0.0, min(ends, due) - now)
            if isinstance(self.socket, ssl.SSLSocket) and self.socket.pending():
                wait_s = 0.0
            ready = dict(poll.poll(wait_s * 1000))
            if self.socket.fileno() in ready or wait_s == 0.0:
                self._read()
            if wake in ready:
                with suppress(BlockingIOError):
                    os.read(wake, 8)
                self._look()
                self._check_end()
                return
            if time.monotonic() >= ends:
                self._look()
                self._check_end()
                return

    def _tick(self) -> float:
        if time.monotonic() >= self._due:  # this thread was elsewhere: what came meanwhile counts
            self._read()
        due = self._transport.tick(time.monotonic())
        self._due = float(due) if due else time.monotonic() + 3600.0
        return self._due

    def _read(self) -> None:
        while (room := self._transport.capacity()) > 0:
            try:
                data = self.socket.recv(min(room, _BYTES))
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except OSError as error:
                raise self.broken(str(error)) from error
            if not data:
                self._eof = True
                with suppress(ProtonException):
                    self._transport.close_tail()
                return
            try:
                self._transport.push(data)
            except ProtonException as error:
                raise self.broken(str(error)) from error

    def _write(self) -> None:
        while (size := self._transport.pending()) > 0:
            try:
                sent = self.socket.send(self._transport.peek(min(size, _BYTES)))
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except OSError as error:
                raise self.broken(str(error)) from error
            self._transport.pop(sent)

    def _look(self) -> bool:
        """What happened; whether anything did that somebody waits for."""
        happened = False
        while (event := self._collector.peek()) is not None:
            kind = event.type
            if kind == Event.DELIVERY:
                delivery = event.delivery
                if delivery.updated or delivery.settled:
                    self.told.append((delivery.tag, delivery.remote_state == Delivery.ACCEPTED))
                    delivery.settle()
                    happened = True
            elif kind in (Event.LINK_REMOTE_CLOSE, Event.LINK_REMOTE_DETACH):
                self._unlinked(event.link)
                happened = True
            elif kind == Event.SESSION_REMOTE_CLOSE:
                raise ended(self._channel, event.session.remote_condition)
            elif kind == Event.CONNECTION_REMOTE_CLOSE:
                raise ended(self._channel, self._connection.remote_condition)
            elif kind == Event.TRANSPORT_ERROR:
                raise ended(self._channel, event.transport.condition)
            elif kind in (Event.LINK_REMOTE_OPEN, Event.LINK_FLOW, Event.CONNECTION_REMOTE_OPEN):
                happened = True
            self._collector.pop()
        return happened

    def _unlinked(self, link: Link) -> None:
        """The other side has ended a link. One of a foreign peer, on which nothing is under way,
        says something of its own address alone; anything else is of the line."""
        error = ended(self._channel, link.remote_condition)
        address = next((name for name, each in self._links.items() if each == link), "")
        if not address or link.unsettled or not isinstance(error, ChannelRefused):
            raise error
        del self._links[address]
        self._refusals[address] = str(error)
        link.close()

    def _check_end(self) -> None:
        if self._eof:
            raise self.broken("the other side has closed it")

    def broken(self, reason: str) -> ChannelBroken:
        """It is to be made anew."""
        return broken(self._channel, reason)

    def close(self, *, politely: bool) -> None:
        """`politely`: the other side gets a close, and has a moment to answer with its own."""
        try:
            if politely and not self._eof:
                self._connection.close()
                ends = time.monotonic() + _CLOSE_S
                while not self._eof and time.monotonic() < ends:
                    self.pump(ends - time.monotonic())
        except (ChannelBroken, ChannelRefused, ChannelOutOfStep):
            pass  # that is the end, too
        finally:
            self.socket.close()


_REFUSALS: Final = frozenset((
    "amqp:unauthorized-access", "amqp:not-found", "amqp:invalid-field", "amqp:not-allowed",
    "amqp:precondition-failed", "amqp:not-implemented", "amqp:resource-deleted"))


def ended(channel: Channel, condition: Any) -> ChannelOutOfStep | ChannelRefused | ChannelBroken:
    """The other side has ended a link, a session or all of it."""
    if condition is None:
        return broken(channel, "closed")
    name, reason = condition.name, f"{condition.name}: {condition.description or ''}"
    if name == OUT_OF_STEP:
        return ChannelOutOfStep(channel=channel.name, reason=reason)
    return (refused if name in _REFUSALS else broken)(channel, reason)


def broken(channel: Channel, reason: str) -> ChannelBroken:
    """The line is to be made anew."""
    return ChannelBroken(channel=channel.name, peer=channel.peer, reason=reason)


def refused(channel: Channel, reason: str) -> ChannelRefused:
    """Made anew it would be as now."""
    return ChannelRefused(channel=channel.name, peer=channel.peer, reason=reason)
