"""Queues made, changed, looked at and removed by a program: `connection.queues`.

    connection.queues.define("ORDERS.EU", max_depth=10_000)
    connection.queues.define("ORDERS.ALL", "alias", target="ORDERS.EU ORDERS.US")
    connection.queues.show("ORDERS.EU").facts["ready"]

Keys are those of queues.conf, with text, numbers or truth as values. Every change needs the right
`admin` on the name. It is in force, and safe, when the call returns. Errors: BadDefinition,
UnknownQueue, QueueExists, QueueOfFile, QueueNotEmpty, QueueInUse, TooManyQueues, WrongKind,
NoTruncate, NoAuthority.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from omq.ipc.wire import arguments

if TYPE_CHECKING:
    from omq.ipc.client.connection_parts import Wire

Value = str | int | bool | None
_TRUTH = {True: "yes", False: "no"}


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue. `kind`: local, alias, model, temporary, remote, transmission; `by`: who defines it
    (queues.conf, run time, or nobody any more); `facts`: what is on it (of `show` only); `paused`:
    its keys of which nothing is handed out."""

    name: str
    kind: str
    by: str
    number: int
    messages: int
    keys: Mapping[str, str]
    facts: Mapping[str, int | str] = field(default_factory=dict)
    paused: tuple[str, ...] = ()


class QueueCommands:
    """See the module. Of one connection."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def define(self, name: str, kind: str = "local", *, reason: str = "", **keys: Value) -> None:
        """A new queue: local, alias (`target`: one queue or several), model (`lifetime`), remote
        (`remote_queue`, `remote_manager`, `transmission`) or transmission. A local one may have a
        `note`: up to 1200 ASCII characters for other programs, which omq does not look into."""
        self.define_by(name, kind, keys, reason=reason)

    def define_by(self, name: str, kind: str, keys: Mapping[str, Value], *, reason: str = ""
                  ) -> None:
        """`define`, with keys that are somebody else's words: they may be named as anything."""
        self._do("define", name, reason, kind=arguments.text(kind, "kind"), keys=_texts(keys))

    def alter(self, name: str, *, reason: str = "", **keys: Value) -> None:
        """Other keys for a queue that was defined at run time; None: as [*] of queues.conf says.
        `alter(name, get="inhibited")` holds it, `get="allowed"` releases it, at once."""
        self.alter_by(name, keys, reason=reason)

    def alter_by(self, name: str, keys: Mapping[str, Value], *, reason: str = "") -> None:
        """`alter`, with keys that are somebody else's words."""
        self._do("alter", name, reason, keys=_texts(keys))

    def rename(self, name: str, to: str, *, reason: str = "") -> None:
        """The same queue, with its messages and readers, is called `to`."""
        self._do("rename", name, reason, to=arguments.queue(to, "to"))

    def roll_over(self, name: str, to: str, *, reason: str = "") -> None:
        """Under `name` there is a new, empty queue; the old one with its messages and readers is
        called `to`, takes no more, and is removed when it is empty and nobody reads it."""
        self._do("roll_over", name, reason, to=arguments.queue(to, "to"))

    def delete(self, name: str, *, force: bool = False, reason: str = "") -> None:
        """Remove an empty queue. `force`: readers that hold nothing lose it (QueueGone)."""
        self._do("delete", name, reason, force=arguments.flag(force, "force"))

    def clear(self, name: str, *, reason: str = "") -> int:
        """Delete the messages that are on it now and that no reader has; how many."""
        cleared, until = 0, 0
        while True:
            answer = self._do("clear", name, reason, until=until)
            until, cleared = int(answer["until"]), cleared + int(answer["cleared"])
            if not answer["left"] or not answer["cleared"]:
                return cleared

    def pause(self, name: str, key: str, *, keyed: bool = True, reason: str = "") -> None:
        """Hand out nothing of this key of a queue with `limit_by` any more, over every restart,
        until `resume`. `key`: a group id or a property's value; "": messages without one. What
        readers have is theirs. `keyed` False: also of a queue without `limit_by` (else WrongKind),
        where it waits for that."""
        self._do("pause", name, reason, key=arguments.text(key, "key"),
                 keyed=arguments.flag(keyed, "keyed"))

    def resume(self, name: str, key: str, *, reason: str = "") -> None:
        """Hand out messages of this key again; one that is not paused stays so."""
        self._do("resume", name, reason, key=arguments.text(key, "key"))

    def waits_for(self, name: str, qpool_id: int) -> str:
        """Which limit of work holds a ready message of a queue; "": none does."""
        return str(self._do("why", name, "", qpool=qpool_id)["text"])

    def truncate(self, name: str, *, reason: str = "") -> None:
        """An empty queue forgets what was on it. By a reader of it, when nobody has it open to put,
        it is drained, and no open unit of work puts there: else NoTruncate says which."""
        self._do("truncate", name, reason)

    def show(self, name: str) -> QueueInfo:
        """What it is, and the facts of what is on it."""
        told = self._do("show", name, "")
        facts = told["facts"]
        if facts:
            last = int(facts["last_message"])
            facts["last_message"] = self._wire.link.id_prefix + f"{last:016x}" if last else ""
        return _info(told)

    def list(self) -> list[QueueInfo]:
        """All queues that this client may do something with."""
        return [_info(each) for each in self._wire.control({"op": "queue", "do": "list"})["queues"]]

    def temporary(self, model: str = "", *, note: str = "") -> str:
        """A queue of this connection, and its name; it goes with the connection, and what is on it
        goes with it. Of a model with lifetime = permanent: one that stays. The right is `get` on
        the model, or on TEMPORARY without one. `note`: what others find in its keys, see define."""
        answer = self._wire.control({
            "op": "temporary", "model": arguments.queue(model, "model") if model else "",
            "note": arguments.text(note, "note")})
        return str(answer["queue"])

    def _do(self, do: str, name: str, reason: str, **more: Any) -> dict[str, Any]:
        return self._wire.control({
            "op": "queue", "do": do, "queue": arguments.queue(name, "name"), "command": (
                f"{do} {name}"), "reason": arguments.text(reason, "reason"), **more})


def _texts(keys: Mapping[str, Value]) -> dict[str, str | None]:
    """Values in the words of queues.conf."""
    out: dict[str, str | None] = {}
    for key, value in keys.items():
        if value is not None and not isinstance(value, str | int):
            raise arguments.wrong(key, value, "it is text, a number, True, False or None")
        out[key] = (value if value is None or isinstance(value, str)
                    else _TRUTH[value] if isinstance(value, bool) else str(value))
    return out


def _info(told: Mapping[str, Any]) -> QueueInfo:
    return QueueInfo(
        str(told["queue"]), str(told["kind"]), str(told["by"]), int(told["number"]),
        int(told["messages"]), told["keys"], told.get("facts", {}),
        tuple(told.get("paused", ())))
