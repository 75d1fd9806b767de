"""What a channel is: a transmission queue whose `note` says where its messages go.

    {"channel": {"host": "east.example.org", "tls": "yes", "user": "west"}}

A channel has the name of its queue, so a queue has one channel at most, and is made, changed and
removed with the rights on the queue and with its author (ADR 0049). Keys that are not said have
the defaults of KEYS.

Errors: BadChannel.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from omq.base.errors import BadChannel
from omq.format.definition import Kind
from omq.ipc.client.connection import Client
from omq.ipc.client.queues import QueueInfo
from omq.services.channel.names import RESET, Reset, reset_said

NOTE: Final = "note"
STARTED, STOPPED, IDLE = "started", "stopped", "idle"
OMQ, FOREIGN = "omq", "foreign"
ORDER: Final = "reset"
"""A key that is not for people: `omq channel reset` says it, and it goes when it is carried out."""
_DAY_S: Final = 86_400
_HOST: Final = re.compile(r"[A-Za-z0-9.:_-]{1,255}(,[A-Za-z0-9.:_-]{1,255}){0,15}")
_USER: Final = re.compile(r"[A-Za-z0-9_.@-]{0,64}")
_ADDRESS: Final = re.compile(r"[!-~]{1,200}")


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a channel: default, what it may be, what it is for. `words`: one of these;
    `least`, `most`: a number; `pattern`: a text."""

    default: str
    purpose: str
    words: tuple[str, ...] = ()
    least: int = 0
    most: int = -1
    pattern: re.Pattern[str] | None = None

    def wrong(self, value: str) -> str:
        """What is allowed instead; "": it may be that."""
        if self.words:
            return "" if value in self.words else " or ".join(self.words)
        if self.pattern is not None:
            return "" if self.pattern.fullmatch(value) else f"text as {self.pattern.pattern}"
        fits = (value.isascii() and value.isdigit() and len(value) < 12
                and self.least <= int(value) <= self.most)
        return "" if fits else f"{self.least} to {self.most}"


KEYS: Final[dict[str, Key]] = {
    "host": Key("", "host name or address of the other side; several with commas: the members of "
                    "one instance, of which the first that answers is taken", pattern=_HOST),
    "port": Key("0", "its port; 0: 5671 with TLS, else 5672", least=0, most=65535),
    "tls": Key("yes", "TLS from the first byte; no: only to this host, or with plain = everywhere",
               words=("yes", "no")),
    "plain": Key("loopback", "where a connection without TLS may go",
                 words=("loopback", "everywhere")),
    "user": Key("", "user name at the other side, with its password in channel_passwords; empty: "
                    "by certificate, else anonymous", pattern=_USER),
    "peer": Key(OMQ, "what is there: an omq (exactly once), or a foreign broker (at least once)",
                words=(OMQ, FOREIGN)),
    "address": Key("{queue}", "address of a queue at a foreign broker, {queue} in it",
                   pattern=_ADDRESS),
    "batchsize": Key("50", "messages of a batch at most", least=1, most=1000),
    "batchint": Key("0", "ms that a batch waits for more messages when the queue is empty",
                    least=0, most=60_000),
    "batchlimit": Key("5000", "KiB of a batch, about: it ends with the message that reaches it",
                      least=1, most=32 * 1024),
    "transferlimit": Key("64", "KiB of one transfer, about: messages of a batch travel together up "
                               "to there; 0: each by itself", least=0, most=1024),
    "pipeline": Key("2", "batches under way: the next one is sent while one is committed there",
                    least=1, most=8),
    "heartbeat": Key("30", "s of silence after which each side sends a sign of life; after twice "
                           "that the connection counts as broken", least=1, most=3600),
    "disconnect": Key("0", "s without a message after which the connection is closed and the "
                           "channel is idle, until it is started; 0: never", least=0, most=_DAY_S),
    "short_retries": Key("10", "tries after short_retry, then after long_retry", least=0,
                         most=1000),
    "short_retry": Key("5", "s until a broken connection, or an absent peer, is retried",
                       least=0, most=_DAY_S),
    "long_retry": Key("120", "the same after short_retries tries", least=1, most=_DAY_S),
    "state": Key(STARTED, "what the operator wants of it", words=(STARTED, STOPPED, IDLE)),
    ORDER: Key("", "what waits for the next line: by `omq channel reset` alone",
               pattern=re.compile(f"({RESET.pattern})?")),
}
"""All of them; `host` has to be said."""


@dataclass(frozen=True, slots=True)
class Channel:
    """One channel; `values` in the words of KEYS, all of them."""

    name: str
    values: Mapping[str, str]

    def text(self, key: str) -> str:
        return self.values[key]

    def number(self, key: str) -> int:
        return int(self.values[key])

    @property
    def foreign(self) -> bool:
        """The other side is not omq."""
        return self.values["peer"] == FOREIGN

    @property
    def tls(self) -> bool:
        return self.values["tls"] == "yes"

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each member of the other side."""
        port = self.number("port") or (5671 if self.tls else 5672)
        return [(host, port) for host in self.text("host").split(",")]

    @property
    def peer(self) -> str:
        """For people."""
        return f"{self.text('host')} port {self.addresses[0][1]}"

    @property
    def reset(self) -> Reset | None:
        """What the other side is to be told first, and nothing else with it."""
        return reset_said(self.values[ORDER])

    def note(self) -> str:
        """As the queue's definition has it: what is not as the defaults."""
        said = {key: value for key, value in self.values.items() if value != KEYS[key].default}
        return json.dumps({"channel": said}, separators=(",", ":"), sort_keys=True)


def made(name: str, said: Mapping[str, str]) -> Channel:
    """Of what was said. BadChannel."""
    for key, value in said.items():
        known = KEYS.get(key)
        if known is None:
            raise BadChannel(channel=name, key=key, reason="there is no such key",
                             allowed=", ".join(KEYS))
        if allowed := known.wrong(value):
            raise BadChannel(channel=name, key=key, reason=f"it cannot be {value!r}",
                             allowed=allowed)
    if not said.get("host"):
        raise BadChannel(channel=name, key="host", reason="it is missing",
                         allowed="the other side's name or address")
    return Channel(name, {key: said.get(key, each.default) for key, each in KEYS.items()})


def said_in(note: str) -> dict[str, str] | None:
    """What a note says of a channel; None: nothing."""
    try:
        told = json.loads(note) if note else None
    except ValueError:
        return None
    said = told.get("channel") if isinstance(told, dict) else None
    if not isinstance(said, dict) or not all(isinstance(each, str) for each in said.values()):
        return None
    return said


def channel_of(info: QueueInfo) -> Channel | None:
    """The channel of a queue; None: it has none. BadChannel."""
    said = said_in(info.keys.get(NOTE, "")) if info.kind == Kind.TRANSMISSION.value else None
    return None if said is None else made(info.name, said)


def altered(channel: Channel, **said: str) -> Channel:
    """With other values. BadChannel."""
    kept = {key: value for key, value in channel.values.items() if value != KEYS[key].default}
    return made(channel.name, {**kept, **said})


def write(native: Client, channel: Channel, reason: str = "") -> None:
    """The definition of a queue that is there says so from now on."""
    native.queues.alter(channel.name, reason=reason, **{NOTE: channel.note()})
