"""Submitters and readers of the soak: they do random work and write down what they did and saw.

Each runs in a process of its own until its work is done (submitters) or the file `stop` appears and
its queue is empty (readers); it may be killed at any instruction.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import omq
from omq.base.checksum import crc32c
from omq.base.errors import OmqError
from omq.ipc.client.connection import Client
from omq.ipc.wire.outgoing import Outgoing
from omqtools.omqtest.history import HistoryFile, Line

BODY_MAX = 64 * 1024
BATCH_MAX = 20
QUEUES = ("A", "B", "C")
PRIORITIES = (1, 4, 7)
EMPTY_WAIT_S = 0.2
DONE_SHARE = 0.9
TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Work:
    """What clients share."""

    spool: Path
    histories: Path
    stop: Path
    seed: int
    gentle: bool  # no dispositions but done, so that order can be judged strictly


def submit(work: Work, producer: str, count: int) -> int:
    """Put `count` messages, one by one and in batches."""
    rng = random.Random(f"{work.seed} {producer}")
    history = HistoryFile(work.histories / producer)
    with omq.connect(work.spool, name=producer[:16], timeout_s=TIMEOUT_S) as c:
        number = 0
        while number < count:
            queue = rng.choice(QUEUES)
            batch = rng.choice((1, 1, rng.randint(1, BATCH_MAX)))
            messages = [_message(rng, f"{producer}:{number + i}") for i in range(batch)]
            number += batch
            history.say(*({"op": "try", "key": _key(m.properties, m.body), "queue": queue,
                           "priority": m.priority, "crc": crc32c(m.body)} for m in messages))
            ids = _put(c, queue, messages, single=batch == 1)
            history.say(*({"op": "ok", "key": _key(m.properties, m.body), "id": i}
                          for m, i in zip(messages, ids, strict=True)))
    history.close()
    return 0


def _put(c: Client, queue: str, messages: list[Outgoing], *, single: bool) -> list[str]:
    if single:
        return [c.put(queue, outgoing=messages[0])]
    plain = all(not m.properties and m.priority == 4 for m in messages)
    return c.put_many(queue, [m.body for m in messages] if plain else messages)


def _message(rng: random.Random, key: str) -> Outgoing:
    """The key is in a property, or begins the body."""
    size = rng.choice((0, rng.randint(0, 200), rng.randint(0, BODY_MAX)))
    priority = rng.choice(PRIORITIES)
    if rng.random() < 0.5:
        return Outgoing(rng.randbytes(size), priority=priority, properties={"key": key})
    return Outgoing(key.encode() + b"\n" + rng.randbytes(size), priority=priority)


def _key(properties: object, body: bytes) -> str:
    assert isinstance(properties, dict)
    named = properties.get("key")
    return str(named) if named else body.partition(b"\n")[0].decode("ascii", "replace")


def read(work: Work, who: str, queue: str, batch: int, *, auxiliary: bool) -> int:
    """Take messages until told to stop and nothing is left."""
    rng = random.Random(f"{work.seed} {who}")
    history = HistoryFile(work.histories / who)
    with omq.connect(work.spool, name=who[:16], timeout_s=TIMEOUT_S) as c, \
            c.reader(queue, batch=batch, auxiliary=auxiliary) as reader:
        said: list[Line] = []
        lost = 0
        while True:
            stopping = work.stop.exists()
            messages = reader.next(timeout_s=0 if stopping else EMPTY_WAIT_S)
            if reader.lost == lost:  # else nobody knows which of them counted
                history.say(*({**line, "op": "done"} for line in said))
            lost = reader.lost
            if not messages and stopping:
                break
            history.say(*(_got(m, who) for m in messages))
            ended: list[tuple[omq.Message, float]] = []
            others: list[tuple[omq.Message, float]] = []
            for message in messages:
                what = 0.0 if work.gentle else rng.random()
                (ended if what < DONE_SHARE else others).append((message, what))
            # Said first: a settlement holds from when it is made, however the process ends then.
            said = [{"op": "ending", **_place(message)} for message, _ in ended]
            history.say(*said)
            for message, _ in ended:
                message.done()
            for message, what in others:
                _not_done(history, message, what)
    history.close()
    return 0


def _got(message: omq.Message, who: str) -> Line:
    return {"op": "got", "key": _key(message.properties, message.body), "queue": message.queue,
            "priority": message.priority, "crc": crc32c(message.body), "lease": message.lease,
            "flag": message.redelivered, "who": who}


def _place(message: omq.Message) -> Line:
    return {"key": _key(message.properties, message.body), "queue": message.queue,
            "lease": message.lease}


def _not_done(history: HistoryFile, message: omq.Message, what: float) -> None:
    """End the work on a message in one of the other ways."""
    if what < 0.94:
        history.say({"op": "back", **_place(message)})
        message.release()
    elif what < 0.97:
        message.defer(0.0, "soak")
    else:
        message.fail("soak")


def left(spool: Path) -> int:
    """Messages of the instance, in every state."""
    try:
        with omq.connect(spool, name="count", timeout_s=TIMEOUT_S) as c:
            return int(c.control({"op": "status"})["counters"]["messages"])
    except OmqError as error:
        raise AssertionError("the manager does not answer") from error
