"""The clients of a run: they put and read numbered messages and write down what they did and saw.

A body follows from its key alone, so that whoever reads it can tell whether it is the one that was
put: the key, a line feed, and random bytes seeded by the key. Some bodies are containers.
"""

from __future__ import annotations

import random
from pathlib import Path

import omq
from omq.base.errors import ManagerUnavailable, OmqError, TimedOut
from omqtools.omqtest.history import Line, Sink

QUEUE, OTHER = "A", "B"
BATCH_MAX = 8
WAIT_S = 0.2
TIMEOUT_S = 60.0
IN_DOUBT = (ManagerUnavailable, TimedOut)


def body_of(key: str) -> bytes:
    """The body of a message."""
    chance = random.Random(key)
    size = chance.choice((0, chance.randint(0, 500), chance.randint(0, 9000), 50_000))
    if size == 50_000 and chance.random() < 0.7:
        size = 100
    return key.encode() + b"\n" + chance.randbytes(size)


def key_of(body: bytes) -> tuple[str, bool]:
    """(key, whether the body is another one than was put under it)."""
    key = body.partition(b"\n")[0][:40].decode("ascii", "replace")
    return key, body != body_of(key)


def put(spool: Path, sink: Sink, name: str, count: int, timeout_s: float = TIMEOUT_S) -> int:
    """Put messages name:0 .. name:count-1; 1 when the manager was away too long."""
    chance = random.Random(name)
    with omq.connect(spool, name=name, timeout_s=timeout_s) as c:
        number = 0
        while number < count:
            size = min(count - number, chance.choice((1, 1, 1, chance.randint(2, BATCH_MAX))))
            keys = [f"{name}:{number + i}" for i in range(size)]
            number += size
            sink.say(*({"op": "try", "key": key} for key in keys))
            try:
                if size == 1:
                    c.put(QUEUE, body_of(keys[0]))
                else:
                    c.put_many(QUEUE, [body_of(key) for key in keys])
            except IN_DOUBT:
                return 1
            except OmqError:
                if size == 1:
                    sink.say({"op": "no", "key": keys[0]})
                continue  # of a batch that went in several requests a part may be there
            sink.say(*({"op": "ok", "key": key} for key in keys))
    return 0


def read(spool: Path, sink: Sink, name: str, until: Path, share: int = 100,
         timeout_s: float = TIMEOUT_S) -> int:
    """Take messages until `until` exists and nothing is left; end `share` percent of them, of the
    others the second half moves to queue B or comes back. 1 when the manager was away too long."""
    chance = random.Random(name)
    try:
        with omq.connect(spool, name=name, timeout_s=timeout_s) as c:
            for queue in (QUEUE, OTHER) if share == 100 else (QUEUE,):
                with c.reader(queue, batch=10) as reader:
                    _read_queue(reader, sink, chance, until, share)
    except IN_DOUBT:
        return 1
    return 0


def _read_queue(reader: omq.Reader, sink: Sink, chance: random.Random, until: Path, share: int
                ) -> None:
    ending: list[Line] = []
    lost = reader.lost
    while True:
        last = until.exists()
        messages = reader.next(timeout_s=WAIT_S)
        if reader.lost == lost:  # else nobody knows which of them counted
            sink.say(*({**line, "op": "done"} for line in ending))
        lost, ending = reader.lost, []
        if not messages and last:
            return
        for message in messages:
            key, bad = key_of(message.body)
            sink.say({"op": "got", "key": key, "lease": message.lease,
                      "flag": message.redelivered, "bad": bad})
            if chance.randrange(100) < share:
                ending.append({"op": "ending", "key": key})
                sink.say(ending[-1])
                message.done()
            elif chance.random() < 0.5:
                sink.say({"op": "back", "key": key})
                message.move(OTHER)
            else:
                sink.say({"op": "back", "key": key})
                message.defer(0.0)
