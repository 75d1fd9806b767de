"""A broker by Proton's own server classes, in a process of its own.

It ends the whole session of who names a queue that it does not know, as RabbitMQ does, and its
queues take messages up to a length.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from proton import Condition, Event
from proton.handlers import MessagingHandler
from proton.reactor import Container

from tests.process.processes import Child, start

FOLLOWS: Final = "broker.port"


class _Broker(MessagingHandler):  # type: ignore[misc]
    def __init__(self, folder: Path, unknown: str, bytes_max: int) -> None:
        super().__init__(auto_accept=True)
        self._folder, self._unknown, self._bytes_max = folder, unknown, bytes_max

    def on_start(self, event: Event) -> None:
        acceptor = event.container.listen("127.0.0.1:0")
        port = acceptor._selectable._delegate.getsockname()[1]
        made = self._folder / "port.new"
        made.write_text(str(port))
        made.rename(self._folder / FOLLOWS)

    def on_link_opening(self, event: Event) -> None:
        link = event.link
        if link.remote_target.address == self._unknown:
            event.session.condition = Condition("amqp:not-found", "no such queue")
            event.session.close()
            return
        link.target.copy(link.remote_target)
        link.source.copy(link.remote_source)
        link.max_message_size = self._bytes_max

    def on_message(self, event: Event) -> None:
        with (self._folder / "got").open("a") as file:
            file.write(json.dumps([event.link.target.address, bytes(event.message.body).decode()])
                       + "\n")


class Broker:
    """See the module. `got`: bodies by queue."""

    def __init__(self, folder: Path, *, unknown: str, bytes_max: int) -> None:
        self._folder = folder

        def serve() -> int:
            Container(_Broker(folder, unknown, bytes_max)).run()
            return 0

        self._child: Child = start("broker", serve, output=folder / "output")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._child.kill()

    @property
    def listening(self) -> bool:
        assert self._child.running, (self._folder / "output").read_text()
        return (self._folder / FOLLOWS).exists()

    @property
    def port(self) -> int:
        return int((self._folder / FOLLOWS).read_text())

    @property
    def got(self) -> dict[str, list[str]]:
        found: dict[str, list[Any]] = {}
        for line in (self._folder / "got").read_text().splitlines():
            queue, body = json.loads(line)
            found.setdefault(queue, []).append(body)
        return found
