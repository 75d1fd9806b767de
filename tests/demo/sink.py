"""The sink: the outside world's mail server, a process of its own on loopback.

It accepts everything and writes each transaction to one file, `NNNNNNNN-RR.msg` (a counter, and the
number of recipients, so that arrivals can be counted by listing the folder): one line of JSON with
the envelope, then the message bytes as received. A file is complete before its 250 is sent.

A small share of recipients and of messages is refused for the moment (4xx), so that whoever
delivers has to defer and to cope with a transaction that only some recipients survive. The refusals
come from a seeded generator; each is drawn anew, so a retry gets through.

It listens on two ports: a peer that answers at once, and one that takes SLOW_S for each message.

The parent and the sink share a pipe: the sink writes its ports, then watches for the parent's end
to close. Therefore it never outlives the demo, whatever kills that.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from aiosmtpd.smtp import SMTP, Envelope, Session

from omq.base.settings import DEFAULTS
from tests.demo.mails import is_unknown

SLOW_S = 0.05
"""What the slow peer takes for each message; the other one takes none."""
LATER_SHARE = 0.01  # of recipients, and again of messages: seldom enough to stay a demo of speed
_START_WAIT_S = 30.0  # a new Python process with aiosmtpd; a loaded machine takes seconds
_STOP_WAIT_S = 10.0
_LINE_BYTES_MAX = 2 * DEFAULTS.smtp_line_bytes_max
_LATER = "451 4.7.1 try again in a moment"
_NEVER = "550 5.1.1 no such user"


class SinkError(Exception):
    """The sink process did not start or did not stop."""


class _Session(SMTP):
    """Takes the long lines of real mail, as omq does."""

    line_length_limit = _LINE_BYTES_MAX


# Without slots: aiosmtpd looks at every member, and up to Python 3.11.2 the `__weakref__` of a
# dataclass with slots is one that raises TypeError when it is looked at (CPython gh-102069).
@dataclass
class SinkHandler:
    """Writes accepted transactions to `folder`; the method names are aiosmtpd's."""

    folder: Path
    later_share: float
    rng: random.Random = field(default_factory=lambda: random.Random("omq demo sink"))
    counter: int = 0

    async def handle_RCPT(
        self,
        server: SMTP,
        session: Session,
        envelope: Envelope,
        address: str,
        rcpt_options: list[str],
    ) -> str:
        """Accept the recipient, or refuse it for the moment, or for good."""
        if is_unknown(address):
            return _NEVER
        if self.rng.random() < self.later_share:
            return _LATER
        envelope.rcpt_tos.append(address)
        envelope.rcpt_options.extend(rcpt_options)
        return "250 2.1.5 recipient accepted"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        """Store the message, or refuse it for the moment."""
        if self.rng.random() < self.later_share:
            return _LATER
        content = envelope.content
        assert isinstance(content, bytes)  # the server is not told to decode
        head = {
            "sender": envelope.mail_from or "",
            "recipients": list(envelope.rcpt_tos),
            "options": list(envelope.mail_options),
        }
        self.counter += 1
        path = self.folder / f"{self.counter:08d}-{len(envelope.rcpt_tos):02d}.msg"
        with path.open("xb") as stream:
            stream.write(json.dumps(head).encode("ascii") + b"\n" + content)
        return "250 2.0.0 stored"


def run_sink(folder: str, later_share: float, pipe: Connection) -> None:
    """Body of the sink process: serve until the other end of `pipe` closes."""
    # Ctrl-C reaches the whole process group; the parent decides when the sink ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    folder_path = Path(folder)
    folder_path.mkdir(parents=True, exist_ok=True)
    asyncio.run(_serve(SinkHandler(folder_path, later_share), pipe))


@dataclass
class SlowHandler:
    """Takes SLOW_S for each message, then as the other."""

    handler: SinkHandler

    async def handle_RCPT(
        self,
        server: SMTP,
        session: Session,
        envelope: Envelope,
        address: str,
        rcpt_options: list[str],
    ) -> str:
        """As the other."""
        return await self.handler.handle_RCPT(server, session, envelope, address, rcpt_options)

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        """Later."""
        await asyncio.sleep(SLOW_S)
        return await self.handler.handle_DATA(server, session, envelope)


async def _serve(handler: SinkHandler, pipe: Connection) -> None:
    loop = asyncio.get_running_loop()

    def session(handler: SinkHandler | SlowHandler) -> SMTP:
        return _Session(handler, hostname="sink.demo.test", enable_SMTPUTF8=True, loop=loop)

    session(handler)  # what cannot be made ends the sink here: asyncio would hang up without a word
    server = await loop.create_server(partial(session, handler), "127.0.0.1", 0)
    slow = await loop.create_server(partial(session, SlowHandler(handler)), "127.0.0.1", 0)
    pipe.send([each.sockets[0].getsockname()[1] for each in (server, slow)])
    parent_gone = asyncio.Event()
    loop.add_reader(pipe.fileno(), parent_gone.set)
    try:
        await parent_gone.wait()
    finally:
        loop.remove_reader(pipe.fileno())
        server.close()
        slow.close()


@dataclass(frozen=True, slots=True)
class Sink:
    """A running sink, seen from the parent."""

    port: int
    slow_port: int
    folder: Path
    pid: int
    is_alive: Callable[[], bool]


@contextmanager
def sink_process(folder: Path, later_share: float = LATER_SHARE) -> Iterator[Sink]:
    """Start the sink, yield its port and folder, and end it."""
    context = get_context("spawn")  # a fresh interpreter: the parent has threads
    ours, theirs = context.Pipe()
    process = context.Process(
        target=run_sink, args=(str(folder), later_share, theirs), name="sink", daemon=True
    )
    process.start()
    theirs.close()
    try:
        yield Sink(*_ports(ours), folder, process.pid or 0, process.is_alive)
    finally:
        ours.close()
        process.join(_STOP_WAIT_S)
        if process.is_alive():
            process.kill()
            process.join()
        process.close()


def _ports(pipe: Connection) -> tuple[int, int]:
    try:
        if pipe.poll(_START_WAIT_S):
            port, slow_port = map(int, pipe.recv())
            return port, slow_port
    except EOFError as ended:
        raise SinkError("the sink process ended before it listened") from ended
    raise SinkError(f"the sink process did not listen within {_START_WAIT_S:.0f} s")
