"""Instances with channels between them, on loopback. Users: nobody (anonymous)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from omq.base.errors import QueueExists
from omq.services.channel.definition import made
from tests.process.amqp_world import SERVER, AmqpWorld
from tests.process.instance import MANAGER, WRITER
from tests.process.ipc_space import ipc_space
from tests.process.processes import start_program
from tests.waiting import until

SENDER = "channel.sender"
QUEUES = """[*]
death_delay_s = 0
attempts_max = 200

[A]

[B]

[REPLIES]

[SYSTEM.CHANNELS]
attempts_max = 255

[SYSTEM.DEAD]

[SYSTEM.TRIGGERS]
persistent = no
"""
AUTHORITY = "[*]\nuser:nobody = put get browse\n"
QUICK = {"channel_look_ms": 50, "channel_put_retry_ms": 20, "channel_put_retries": 3}


class Side(AmqpWorld):
    """One instance."""

    name = ""
    fixed: dict[str, Any]

    def begin(self, **settings: Any) -> None:
        self.fixed = dict(settings)
        self.queues(QUEUES)
        (self.conf / "authority.conf").write_text(AUTHORITY)
        self.configure()
        self.start(MANAGER)
        self.ready()
        self.start(WRITER)

    def configure(self, **changed: Any) -> None:
        super().configure(**changed)
        path = self.conf / "omq.conf"
        said = {"manager_name": self.name, **QUICK, **self.fixed}
        path.write_text(path.read_text() + "[channel]\n" + "".join(
            f"{key} = {value}\n" for key, value in said.items()))

    def serve(self, *, fault: str = "") -> int:
        """Its amqp.server; the port, the same as before where it had one."""
        path = self.paths.run / "amqp.port"
        if path.exists():
            self.configure(amqp_listen_port=int(path.read_text().split()[1]))
        self.start(SERVER, fault=fault)
        return self.await_port()

    def channel(self, name: str, port: int, **said: str) -> None:
        """Define it, with its queue where that is not there."""
        note = made(name, {"host": "127.0.0.1", "port": str(port), "tls": "no",
                           "short_retry": "0", "short_retries": "3",
                           "long_retry": "1", **said}).note()
        with self.connect("define") as native:
            with suppress(QueueExists):
                native.queues.define(name, "transmission", attempts_max=200)
            native.queues.alter(name, note=note)

    def remote(self, name: str, manager: str, queue: str, transmission: str = "") -> None:
        with self.connect("define") as native, suppress(QueueExists):
            native.queues.define(name, "remote", remote_manager=manager, remote_queue=queue,
                                 transmission=transmission or manager)

    def put(self, queue: str, first: int, count: int, **more: Any) -> None:
        with self.connect("put") as native:
            for number in range(first, first + count):
                native.put(queue, b"%d" % number, **more)

    def depth(self, queue: str) -> int:
        with self.connect("look") as native:
            return native.queues.show(queue).messages

    def await_depth(self, queue: str, count: int) -> None:
        self.until(lambda: self.depth(queue) >= count)

    def until(self, true: Callable[[], Any]) -> None:
        until(true, lambda: self.said() + "\n".join(map(str, self.events()[-8:])))

    def numbers(self, queue: str) -> list[int]:
        """What is on it, taken."""
        return [int(message.body) for message in self.drain(queue)]

    def in_doubt(self, channel: str = "") -> list[str]:
        """Names of the units in doubt, or of those of one channel."""
        with self.connect("doubt") as native:
            return [unit.name for unit in native.units_in_doubt()
                    if unit.name.startswith(f"channel {channel} " if channel else "")]

    def of_channel(self, number: int, channel: str) -> list[dict[str, Any]]:
        """The events of one number that tell of one channel."""
        return [event for event in self.events(number) if event["channel"] == channel]

    def forget_channels(self) -> None:
        """What a test has defined runs for no other. Its messages and what it left in doubt stay:
        whoever looks for them asks for their names."""
        with self.connect("forget") as native:
            for info in native.queues.list():
                if info.kind == "transmission":
                    native.queues.alter(info.name, note="")


def omq_channel(side: Side, *words: str, code: int = 0) -> str:
    """`omq channel WORDS`; what it says."""
    output = side.root.parent / "said"
    output.write_text("")
    child = start_program("omq", ["channel", "--spool", str(side.root), "--conf", str(side.conf),
                                  *words], output=output)
    assert child.wait() == code, output.read_text()
    return output.read_text()


def stop_channel(side: Side, channel: str) -> None:
    """Until it has ended; its definition says so before."""
    omq_channel(side, "stop", channel)
    side.until(lambda: json.loads(omq_channel(side, "show", channel, "--json"))["state"]
               == "stopped")


@contextmanager
def sides(root: Path, *names: str, clean: bool = True, core: Mapping[str, object] | None = None,
          **settings: Any) -> Iterator[list[Side]]:
    """Instances with these names, each with its manager and pool.writer; checked at the end.
    `core`: settings as of Instance.settings, `settings`: of channels."""
    with ipc_space() as space:
        found = []
        for name in names:
            (root / name.lower()).mkdir()
            side = Side(root / name.lower(), space)
            side.name = name
            side.settings(**(core or {}))
            found.append(side)
        try:
            for side in found:
                side.begin(**settings)
            yield found
            for side in found:
                side.stop(SENDER, SERVER, MANAGER, WRITER)
            for side in found if clean else ():
                side.finish()
        finally:
            for side in found:
                side.abandon()
