"""Random requests of all kinds on one instance, and a line of digests after every group: what the
index says, what was written, what was answered, and what the engine keeps in memory.

    python -m tests.forms.workload FOLDER SEED GROUPS [fuzz | quiet] [limited | keyed] [back]
        [numbered] [refused] [barriers] [members] [bounds] [staged]

The form is chosen by OMQ_FAST. Two forms that do the same print the same lines; tests/forms/
test_forms.py compares them. `fuzz`: most requests are mutilated. `quiet`: hardly anything but plain
requests, few of them, so that most turns are plain ones and only a deadline makes a full one: the
end of a wait, of a lease, or of a message's time, a look at a note, a deferral. `limited`: queues
have limits of work, some by rates; `keyed`: none by rates, and few odd requests. Limits
change, and keys are paused, while it runs. `back`: many messages fail and come back soon, and what
has the key of a message in doubt is held. `numbered`: most members of groups have numbers, many
groups are whole, and many readers want such. `refused`: units of eight at most, readers and who has
no right to a queue take for units, payloads do not lie in the order of their heads. `barriers`:
many messages that are put wait until others are done. `members`: most clients are other users than
the spool's owner. `bounds`: a block is full with a dozen frames, and the wall clock is set
while no time passes, also behind a start. `staged`: units come in several requests, and some are
larger than what a group collects. Clocks and the uuid are fixed, so nothing depends on the run.
"""

from __future__ import annotations

import random
import resource
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from omq.base import clock
from omq.base.checksum import crc32c
from omq.base.rates import Rate
from omq.core.engine import expiry, limited
from omq.core.engine.groups import GROUPED
from omq.core.engine.limit_rules import LimitRules
from omq.core.engine.operate import Action, Item, Order
from omq.core.engine.rules_of_queue import QueueRules
from omq.core.engine.state import CONTAINER, IDEL, PERSISTENT, POISON, SPECIAL_QUEUES, Core
from omq.fast.reader_note import Note
from omq.format.index import Counter, EntryState
from omq.format.journal import FRAME
from omq.format.message import (
    LAST_IN_GROUP,
    Part,
    derived_id,
    encode_properties,
    id_hash,
    pack_parts,
)
from omq.format.wire import GIVEN, REPLY, REQUEST, SETTLE, Key, Operation, PutFlag, Settlement
from omq.ipc.server.fast_server import FastServer
from omq.ipc.server.group_commit import GroupCommit
from omq.ipc.wire.outgoing import Encoded
from omq.storage import durable
from omq.storage.disk import Buffer, Disk
from tests.model.driver import barrier, draft, encoded
from tests.model.instance import MESSAGES, NS, Client, Given, Instance
from tests.model.reference import Draft

A, B, C, D, NOWHERE = 3, 4, 5, 6, 7
READERS = (A, A, A, B, C, D, D, POISON, IDEL, 0, 0, 0)
UNIQUE = int(PutFlag.UNIQUE)
AUXILIARY, MEMBER, STRANGER = 2, 6, 9  # by number of the client
UNITS = (10, 11)  # these work in units
MEMBERS = (0, 3, 7, 10)  # such as well, of `members`
GUEST, NARROW = 5, 1  # the spool's owner without rights; a channel of few bytes
GROUPS = (b"g", b"h", b"i", b"j", b"k")
ANSWERS = tuple(b"%d" % number for number in range(9))  # correlation ids
KEYS = (b"one", b"two", b"three", b"four")
PROMPT = (0, 3, 5, 7)  # these keep a note (ADR 0035)
QUIET_PROMPT = (0, 4)  # not who has leases: they are longer than a look at a note is away
UNSYNCED_MAX = 20  # frames that are not persistent wait for a sync: so that some become too many
GROUP_CPU_S = 0.5  # many times what a group costs: a broken chain may be a ring


class _Recorder(Disk):
    """The real disk without its syncs; `crc` and `count` are of all that was written."""

    crc = count = 0

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        for buffer in buffers:
            self.crc = crc32c(buffer, self.crc)
        self.crc = crc32c(offset.to_bytes(8, "little"), self.crc)
        self.count += 1
        return super().pwritev(fd, buffers, offset)

    def fdatasync(self, fd: int) -> None:
        self.crc = crc32c(b"fdatasync", self.crc)

    def fsync(self, fd: int) -> None:
        self.crc = crc32c(b"fsync", self.crc)

    def sync_directory(self, path: str) -> None:
        self.crc = crc32c(b"directory", self.crc)


class _Bell:
    """Counts the announcements of a client."""

    def __init__(self) -> None:
        self.rung = 0

    def __call__(self) -> None:
        self.rung += 1


def rules(*, quiet: bool) -> list[QueueRules]:
    """Roomy, with a lease, narrow, and one that is held up now and then; quiet: all are roomy."""
    special = [QueueRules(queue, name, 1 << 32, 1 << 20) for queue, name in SPECIAL_QUEUES.items()]
    if quiet:  # deadlines nearer than the looks and the samples, which would hide a late one
        return [*special, *(QueueRules(queue, name, 1 << 20, 1 << 20, death_delay_ns=NS // 50,
                                       lease_ns=NS // 30 if queue == B else 0)
                            for queue, name in ((A, "A"), (B, "B"), (C, "C"), (D, "D")))]
    return [*special, QueueRules(A, "A", 1 << 20, 1 << 20, dedupe_ns=20 * NS, dedupe_keys_max=12),
            QueueRules(B, "B", 1 << 20, 1 << 20, attempts_max=2, death_delay_ns=5 * NS,
                       lease_ns=20 * NS),
            QueueRules(C, "C", 8, 900, attempts_max=1, death_delay_ns=0),
            QueueRules(D, "D", 9, 2000, expiry_ns=NS, expired_to=A, dedupe_ns=5 * NS,
                       dedupe_keys_max=5, absorbs=False)]


LIMITS = {A: LimitRules(in_work_max=9, rate=Rate(NS // 20, 40)),
          C: LimitRules(by="group", key_in_work_max=5, fair=True, keys_max=5),
          D: LimitRules(in_work_max=4, by="property:colour", key_rate=Rate(NS, 3), keys_max=5)}
"""Of `limited`; B has none."""
UNRATED = {A: LimitRules(in_work_max=3, by="property:colour", key_in_work_max=1, fair=True),
           B: LimitRules(in_work_max=5),
           C: LimitRules(in_work_max=3, by="group", key_in_work_max=1, fair=True),
           D: LimitRules(by="property:colour", key_in_work_max=2)}
"""Of `keyed`."""
COLOURS = ("red", "green", "blue", "")
PROPERTIES = (b"", b"", b"\1", encode_properties({"colours": "red"}),
              encode_properties({"tone": "x" * 600, "colour": "blue"}),  # not at the first look
              *(encode_properties({"tone": "dark", "colour": each}) for each in COLOURS * 2),
              encode_properties({"colour": "red"})[:-1], b"\xff" * 20)
"""What such messages say; some of it is broken."""


class Workload:
    """See the module."""

    def __init__(self, root: Path, seed: int, *, fuzz: bool, quiet: bool,
                 limits: dict[int, LimitRules], back: bool, numbered: bool,
                 refused: bool, barriers: bool, members: bool, bounds: bool, staged: bool) -> None:
        self.disk = _Recorder()
        durable.use(self.disk)
        self.limits, self.keyed = limits, limits is UNRATED
        made = [replace(each, limits=limits.get(each.queue))
                for each in rules(quiet=quiet or self.keyed or numbered or staged)]
        self.instance = Instance(root, made)
        self.instance.settings = replace(self.instance.settings, block_frames_max=52)
        self.random = random.Random(seed)
        self.fuzz, self.quiet, self.back, self.numbered = fuzz, quiet, back, numbered
        self.refused, self.barriers, self.members = refused, barriers, members
        self.bounds, self.staged = bounds, staged
        self.lasting = dict.fromkeys(UNITS, 1)  # is what they put persistent?
        if refused:
            self.instance.settings = replace(self.instance.settings, unit_messages_max=8)
        self.odd = 0.03 if seed % 2 else 0.3  # how much of it is not plain
        self.leaving, self.changing = 0.04, 0.1  # groups with this
        self.certain = 0.2  # requests that ask for a certain message
        if quiet:
            self.certain = 0.2
            self.odd, self.leaving, self.changing = 0.003, 0.03, 0.01
        if self.keyed and not quiet:  # few ask at once, and of what is plain
            self.odd, self.certain, self.leaving, self.changing = self.odd / 4, 0.05, 0.02, 0.03
        if staged:
            self.odd, self.leaving, self.changing = self.odd / 9, 0.02, 0.02
            self.instance.settings = replace(self.instance.settings, units_bytes_max=20_000,
                                             block_bytes_max=8_000)
        if numbered:
            self.certain, self.odd = 0.7, self.odd / 4
        if bounds:
            self.changing = 0.06
            self.instance.settings = replace(
                self.instance.settings, block_frames_max=12, batch_messages_max=10)
        self.clients = [Client(n, queue, n == AUXILIARY) for n, queue in enumerate(READERS)]
        self.notes = {number: Note() for number in (QUIET_PROMPT if quiet else PROMPT)}
        self.requests = 0
        self.fast = 0
        self.full = 0  # turns in which all was done that time may bring
        self._turned = False  # the last one was such
        self._clocks: tuple[int, int] | None = None  # wall and mono of an exact deadline
        self._patient = False  # no wait ends soon, which would be a full turn
        self._start()

    def _start(self) -> None:
        self.instance.start()
        self.instance.core.block.unsynced_max = UNSYNCED_MAX
        server = cast(Any, self.instance.server)
        dispatch, self._turned, self._clocks = server.dispatch, False, None

        def counted() -> None:
            self.full += 1
            self._turned = True
            dispatch()

        server.dispatch = counted
        for client in self.clients:
            client.sequence = 0
            self._register(client)

    def _register(self, client: Client) -> None:
        client.session, client.token = None, b""
        client.sequence, client.held = 0, {}
        self.instance.register(client)
        session, party = client.live, client.live.party
        session.release = cast(Any, session.channel).wake = _Bell()
        assert self.instance.recovered is not None
        session.epoch = self.instance.recovered.epoch
        if client.number in (MEMBER, STRANGER) or (self.members and client.number in MEMBERS):
            party.owns = session.trusted = False
            party.uid = 0 if client.number == MEMBER else 1000
        if client.number == GUEST:
            party.uid = 1000
        if (self.keyed or self.numbered) and client.number != GUEST:  # from its first put on
            session.rights |= {("put", queue): True for queue in (A, B, C, D)}
        if self.refused and client.number == UNITS[0]:
            session.rights["get", C] = False
        if client.number in self.notes:
            session.prompt = True
            self.notes[client.number].attach(session.note, party.token)
        # A journal file of the model takes no request larger than this.
        session.request = session.request[: 700 if client.number == NARROW else 20_000]
        if client.number == NARROW:
            session.reply = session.reply[: REPLY.size + 3 * GIVEN.size]

    # what a client does

    def _drafts(self, count: int, queue: int, given: bytes = b"", most: float = 0.25
                ) -> list[Draft]:
        r, out = self.random, []
        lasting = r.random() < 0.8
        groups = most if count < 5 or r.random() < 0.5 else 0.0  # with one it is no bulk
        if self.keyed and queue == C:
            groups = 0.8
        whole = b"%d" % r.randrange(9) if self.numbered and r.random() < 0.8 else b""
        for place in range(1, count + 1):
            sizes = (0, 1, 9, 200, 200, 850, 950, 3000)[: 8 if count < 5 else 5]
            sizes = sizes[:3] if self.quiet else sizes
            body = r.randbytes(r.choice(sizes))
            group, number = r.choice(GROUPS) if r.random() < groups else b"", 0
            if group and r.random() < self.odd / (90 if self.keyed else 6):
                number = r.choice((1, 2, 2 | LAST_IN_GROUP, 1 | LAST_IN_GROUP, 3))
            if self.numbered and (group or whole):
                group = b"%d" % r.randrange(9)
                number = r.choice((0, 1, 2, 2 | LAST_IN_GROUP, 1 | LAST_IN_GROUP, 3, 70_300))
            if whole:  # all of it, but for some member now and then
                group, number = whole, place + (place == count) * LAST_IN_GROUP
                number = r.choice((0, number + 1)) if r.random() < 0.1 else number
            out.append(draft([Part(queue, r.choice((4, 4, 4, 0, 9, 10 * (r.random() < 0.2))))],
                             body, persistent=lasting if r.random() < 0.97 else not lasting,
                             given=given, group=group, number=number,
                             properties=r.choice(PROPERTIES) if self.limits else b""))
        return out

    def _usual(self) -> tuple[int, ...]:
        """Where most messages go; quiet: where somebody waits, if many do."""
        waiting = [each.queue for each in self.clients
                   if each.live.waiter is not None and each.queue in (A, B, C)]
        if self.quiet and len(waiting) > 2:
            return tuple(waiting)
        if self.keyed:
            return (A, A, B, C, C, D)
        return (A, A, B, B, C) if self.quiet else (A, A, C, D)

    def _put(self, client: Client) -> bytes:
        r = self.random
        odd = r.random() < self.odd
        queue = r.choice((B, B, C, D, D, POISON, 7, IDEL) if odd else self._usual())
        correlation = r.choice((b"", *ANSWERS)) if r.random() < 0.7 else b""
        if (asked := self._asked()) and r.random() < 0.5:
            queue, correlation = r.choice(asked)
        if self.barriers and r.random() < 0.1 and (named := self._members()):
            until = self.instance.wall // NS + r.choice((1, 30, 3000))
            said = encoded(barrier(Part(r.choice((A, C, D)), 4, until % 2 * 128, until), named))
        elif not odd or r.random() < 0.5:
            given = r.choice((*KEYS, r.randbytes(4))) if r.random() < 0.1 else b""
            (one,) = self._drafts(1, queue, given)
            said = encoded(one, correlation=correlation, given=given)
            said.flags |= UNIQUE * (given in KEYS and r.random() < 0.5)
        else:
            until = self.instance.wall // NS + r.randrange(60) if r.random() < 0.4 else 0
            queues = r.sample((A, B, C, D), r.choice((1, 1, 2, 3)))
            said = encoded(draft([Part(queue, 4, until % 2 * 128, until) for queue in queues],
                                 r.randbytes(50),
                                 container=r.random() < 0.5))
        return self._packed(client, Operation.PUT, said.payload, queue=said.queue,
                            priority=said.priority, length=len(said.payload),
                            flags=said.flags | CONTAINER * (r.random() < self.odd / 9),
                            size=said.size, crc=said.crc,
                            want=said.key or 99 * (r.random() < self.odd / 3),
                            correlation=said.correlation, parts=said.parts,
                            expiry=self._time())

    def _members(self) -> list[int]:
        """What a barrier may wait for, mostly what somebody has; or what has been there."""
        r, t = self.random, self.instance.core.t
        there = [e for e in range(t.entries.high) if t.e_state[e] and t.e_queue[e] > POISON
                 and t.m_flags[t.e_message[e]] & PERSISTENT]
        held = [e for e in there if t.e_state[e] == EntryState.ACTIVE]
        chosen = held if held and r.random() < 0.8 else there
        named = {t.m_qpool[t.e_message[e]] for e in r.sample(
            chosen, min(len(chosen), r.choice((1, 1, 2, 3))))}
        return sorted(named) + [r.randrange(1, max(2, self.instance.core.next_qpool))] * (
            r.random() < 0.1)

    def _asked(self) -> list[tuple[int, bytes]]:
        """Queues, and the correlation ids that somebody waits for there."""
        waiters = [client.live.waiter for client in self.clients]
        uuid = self.instance.core.uuid
        return [(waiter.queue, answer) for waiter in waiters
                if waiter is not None and waiter.waiting and waiter.by == Key.CORRELATION
                for answer in (*ANSWERS, derived_id(uuid, waiter.put))
                if id_hash(answer) == waiter.key]

    def _ask(self, client: Client) -> bytes:
        """Settlements, a request, and the wait for its reply."""
        r = self.random
        rows = self._settlements(client)
        odd = r.random() < self.odd / 3
        (one,) = self._drafts(1, r.choice((D, IDEL, 7, C, A) if odd else (A, A, B, C)))
        said = encoded(one, given=b"given" if r.random() < self.odd / 6 else b"")
        said.flags |= CONTAINER * (r.random() < self.odd / 9)
        return self._packed(
            client, Operation.ASK, b"".join([*rows, said.payload]), count=len(rows),
            queue=said.queue, priority=said.priority, flags=said.flags, length=len(said.payload),
            size=said.size, crc=said.crc, correlation=said.correlation, expiry=self._time(),
            want=r.choice((1, 1, 1, 5, 0)) if odd else 1, parts=r.random() < self.odd / 9,
            argument=r.choice((0, 1, 5, 50 if self.quiet else -1)))

    def _time(self) -> int:
        """Mostly none; soon, later, or gone by."""
        r = self.random
        if self.numbered and r.random() < 0.5:
            return self.instance.wall + r.choice((10**4, 10**6, 10**7))
        if r.random() < (0.8 if self.quiet else 0.7):
            return 0
        return r.choice((-1, 1 << 40, self.instance.wall + r.choice((10**6, 10**8, 10**9)),
                         self.instance.wall + 3600 * NS, self.instance.wall + 3600 * NS))

    def _put_many(self, client: Client) -> bytes:
        r = self.random
        queue = r.choice((B, C, D) if r.random() < self.odd else self._usual())
        if keyed := r.random() < self.odd / 2 and not self.quiet:
            queue = r.choice((B, B, queue))  # which remembers none
        count = r.choice((1, 2, 3) if self.quiet else (1, 2, 3, 4, 5) if self.numbered else (
            0, 1, 1, 2, 2, 3, 3, 5, 11, 12, 13, 20, 50, 51))
        if self.bounds and r.random() < 0.5:
            count = r.choice((5, 6, 7, 9, 10))
        said: list[Encoded] = [encoded(one) for one in self._drafts(count, queue)]
        if said and r.random() < (0.5 if self.numbered else 0.1):
            said[-1].correlation, said[-1].expiry = r.randrange(9), self._time()
            for each in said if self.numbered else ():
                each.expiry = said[-1].expiry  # all at once, so that some are late
        if said and r.random() < self.odd:
            one = r.choice(said)
            one.parts, one.key = r.choice(((1, 0), (1, 0), (0, 77), (0, 78)))
        for i in range(len(said) if keyed else 0):
            if r.random() < 0.4:
                given = r.choice(KEYS)
                said[i] = encoded(*self._drafts(1, queue, given), given=given)
        if said and self.barriers and r.random() < 0.1:
            r.choice(said).flags |= PutFlag.BARRIER
        heads, at = [], 0
        for each in said:
            heads.append(each.head(at))
            at += len(each.payload)
        area = b"".join([*heads, *(each.payload for each in said)])
        length = max(0, at - (r.random() < self.odd / 2))
        return self._packed(client, Operation.PUT_MANY, area, queue=queue, count=count,
                            length=length)

    def _settlements(self, client: Client) -> list[bytes]:
        r, rows = self.random, []
        held = list(client.held.values())
        if r.random() < 0.5:  # it forgets those that the manager has from its note
            held = [each for each in held if (each.qpool, each.lease) not in client.live.noted]
        if r.random() < 0.2:
            r.shuffle(held)
        if r.random() < self.odd:  # what somebody else holds
            held += list(r.choice(self.clients).held.values())[:2]
        plain = r.random() > self.odd
        for each in held:
            if r.random() < self.odd / 8:
                continue
            kind = Settlement.DONE if plain or r.random() < 0.4 else r.choice(list(Settlement))
            if self.back and r.random() < 0.4:
                kind = r.choice((Settlement.FAIL, Settlement.DEFER, Settlement.RELEASE))
            spoilt = r.random() < self.odd / 9
            rows.append(SETTLE.pack(
                kind, 0, r.random() < self.odd / 20, each.entry + 3 * (r.random() < self.odd / 20),
                each.qpool + (r.random() < self.odd / 20),
                each.lease + (r.choice((1, 1 << 32)) if spoilt else 0), self._delay(),
                r.random() < self.odd / 20, 0))
        if rows and r.random() < self.odd / 9:
            rows.append(rows[0])
        client.held = {}
        if client.number in self.notes:
            self.notes[client.number].clear()
        return rows

    def _delay(self) -> int:
        """Of what comes back; in quiet work before anything else makes a full turn."""
        if self.back:
            return self.random.randrange(4) * NS // 100
        return self.random.randrange(40) * (NS // 20 if self.quiet else NS)

    def _note(self, client: Client) -> None:
        """It notes how some of its messages ended; the next request says it once more, or not."""
        r, note = self.random, self.notes[client.number]
        note.clear()
        for each in client.held.values():
            if r.random() < 0.7:
                kind = Settlement.DONE if r.random() < 0.8 else r.choice(list(Settlement))
                assert note.settled(SETTLE.pack(
                    kind, 0, 0, each.entry, each.qpool, each.lease + (r.random() < self.odd / 9),
                    self._delay(), 0, 0))
        area = client.live.note
        for _ in range(r.randrange(4) if self.fuzz else 0):
            at = r.randrange(r.choice((64, 200, len(area) - 8)))
            area[at : at + 8] = r.choice((r.randbytes(8), b"\xff" * 8, bytes(8)))

    def _next(self, client: Client) -> bytes:
        r = self.random
        rows = self._settlements(client)
        idle = self.quiet and not rows  # without settlements only a wait is plain
        operation = Operation.NEXT if idle or r.random() < (
            0.6 if self.keyed and rows else 0.85) else Operation.SETTLE
        if r.random() < self.certain * (3 if client.queue == B else 1):  # where leases are
            return self._get(client, rows)
        if r.random() < self.odd / 5 and client.queue != A:  # a looker makes all puts unplain
            return self._packed(client, Operation.LOOK, b"", want=r.choice((1, 20)),
                                argument=r.choice((0, 1, 5)))
        waits: tuple[int, ...] = (-1, 10**6) if self._patient else (0, 0, 1, 1, 1, 5)
        if self.keyed and not self.quiet:
            waits = (0, 60, 100, 200)
        return self._packed(
            client, operation, b"".join(rows), count=len(rows),
            want=r.choice((1, 1, 2, 5, 12, 20, 50, int(idle), 1 << 60)),
            argument=r.choice((*waits, 1 << 62 if r.random() < self.odd else -1)))

    def _get(self, client: Client, rows: list[bytes]) -> bytes:
        """Settlements, and messages with one id."""
        r = self.random
        by = r.choice((0, *Key) if r.random() < 0.2 else (Key.CORRELATION, Key.MESSAGE_ID))
        if self.numbered and r.random() < 0.5:
            by = Key.GROUP
        key = id_hash(r.choice(ANSWERS)) if by == Key.CORRELATION else (
            r.randrange(self.instance.core.next_qpool + 2))
        core, t = self.instance.core, self.instance.core.t
        ready = [entry for entry in range(t.entries.high)
                 if t.e_state[entry] == EntryState.READY and t.e_queue[entry] == client.queue]
        there = [t.e_message[entry] for entry in ready if entry in core.suspects
                 or core.times.is_over(t.e_message[entry])]  # what a death or its time marks
        there = there or [t.e_message[entry] for entry in ready]
        if there and by in (Key.CORRELATION, Key.MESSAGE_ID) and r.random() < 0.7:
            slot = r.choice(there)
            key = t.m_corr[slot] if by == Key.CORRELATION else t.m_key[slot]
        return self._packed(
            client, Operation.GET, b"".join(rows), count=len(rows),
            want=r.choice((1, 1, 2, 20) if by != Key.GROUP else (1, 3, 20, 20)),
            argument=r.choice((0, 1, 5, 50 if self.quiet else -1)), flags=int(by), correlation=key)

    def _move(self, client: Client) -> bytes:
        r = self.random
        if not client.held:
            return self._packed(client, Operation.PING, b"")
        key = r.choice(sorted(client.held))
        each = client.held.pop(key)
        reply = r.random() < 0.8
        asked = self._asked()
        queue, correlation = r.choice(asked) if asked and r.random() < 0.5 else (
            r.choice((A, A, B, C, D)), b"1")
        given = r.choice(KEYS) if r.random() < 0.1 else b""
        (one,) = self._drafts(1, queue if reply else A, given)
        said = encoded(one, correlation=correlation if reply else b"", given=given)
        said.expiry = self._time()
        said.flags |= CONTAINER * (r.random() < self.odd / 9)
        parts = [] if reply and r.random() > self.odd / 4 else [Part(r.choice((A, B, D)), 4)]
        spoilt = r.random() < self.odd / 9
        area = b"".join([SETTLE.pack(0, 0, 0, each.entry, each.qpool, each.lease + spoilt, 0, 0, 0),
                         pack_parts(parts), said.head(spoilt), said.payload])
        count = 1 - (r.random() < 0.05)
        goes_on = not client.held and r.random() < 0.5
        return self._packed(client, Operation.MOVE, area, parts=len(parts), count=count,
                            length=len(said.payload) - spoilt,
                            want=r.choice((1, 2, 20)) if goes_on else 0,
                            argument=r.choice((0, 1, 5)) if goes_on else 0)

    # units of work

    def _take(self, client: Client) -> bytes:
        r = self.random
        by = r.choice((0, *Key)) if r.random() < self.odd / 3 else 0
        return self._packed(
            client, Operation.TAKE, b"", queue=r.choice((A, A, B, C, D, POISON, 7) if
                                                        r.random() < self.odd else (A, B, C)),
            want=r.choice((1, 2, 5, 20)), argument=r.choice((0, 1, 1)), flags=int(by),
            correlation=id_hash(r.choice(ANSWERS)) if by else 0)

    def _unit(self, client: Client, operation: int, **fields: Any) -> bytes:
        """What it took, and some that it puts; what it stages is not all."""
        r = self.random
        held = [*client.held.values()][: 3 if operation == Operation.STAGE else 99]
        if operation != Operation.STAGE:
            held = [each for each in held if r.random() > self.odd / 9]
        parts = self.staged and operation == Operation.STAGE
        rows = [SETTLE.pack(
            Settlement.DONE if r.random() > (0.02 if parts else self.odd / 20) else Settlement.FAIL,
            0, 0, each.entry, each.qpool, each.lease + (r.random() < self.odd / 20), 0, 0, 0)
            for each in held]
        if operation != Operation.STAGE:
            client.held = {}
        elif self.staged:
            for key in [*client.held][:3]:
                del client.held[key]
        prepares = operation == Operation.PREPARE
        count = r.choice((0, 0, 1, 1, 2, 3, 3 if self.quiet or prepares or (
            self.staged and r.random() < 0.6) else 20)[
            2 * (not rows) * (not self.back) :])
        keys = r.choices((b"", b"", b"", b"", *KEYS[prepares * 3 :]), k=count)
        queues = r.choices((A, B, C), k=count)
        if parts and count and r.random() < 0.03:  # where nobody may, if that is known
            queues[-1] = r.choice((IDEL, POISON, POISON, NOWHERE))
        said = [encoded(one, given=key) for queue, key in zip(queues, keys, strict=True)
                for one in self._drafts(1, queue, key, 0.05 if prepares else 0.25)]
        lasting = PutFlag.PERSISTENT if r.random() < 0.7 or prepares else 0
        staged = self._staged(client)
        if any(staged):
            lasting = PutFlag(self.lasting[client.number])
            if not parts and r.random() < 0.1:  # as if this were all of it
                staged = 0, 0
        self.lasting[client.number] = int(lasting)
        for each in said if r.random() > self.odd / 3 else ():
            each.flags = each.flags & ~int(PutFlag.PERSISTENT) | int(lasting)
        if said and r.random() < self.odd / 3:
            said[-1].flags |= CONTAINER
        heads, at = [], 0
        for each in said:
            each.expiry = self._time()
            heads.append(each.head(at))
            at += len(each.payload)
        if self.refused and len(said) > 1 and r.random() < 0.3:  # payloads in another order
            heads[:2] = said[0].head(len(said[1].payload)), said[1].head(0)
            said[:2] = said[1::-1]
        name = r.choice((b"", b"", b"", b"one", b"other", b"\xff" * (r.random() < self.odd)))
        name = name if prepares else b""
        area = b"".join([*rows, *heads, *(each.payload for each in said), name])
        return self._packed(client, operation, area, parts=len(rows), count=len(said), length=at,
                            queue=len(name),
                            argument=staged[0] + len(rows) + (r.random() < self.odd / 9),
                            want=staged[1] + len(said) + (r.random() < self.odd / 9))

    def _staged(self, client: Client) -> tuple[int, int]:
        """What its unit has taken and put so far; nothing where units are not `staged`."""
        known = self.instance.server.units.of(client.live)
        if known is None or not self.staged:
            return 0, 0
        return (len(known.taken) + len(known.rows) // SETTLE.size,
                len(known.new) + len(known.heads) // FRAME.size)

    def _commit(self, client: Client) -> bytes:
        return self._unit(client, Operation.COMMIT)

    def _prepare(self, client: Client) -> bytes:
        t = self.instance.core.t  # a unit of what is not persistent is refused
        lasting = all(t.m_flags[t.e_message[each.entry]] & 1 for each in client.held.values())
        prepares = lasting or self.random.random() < self.odd
        return self._unit(client, Operation.PREPARE if prepares else Operation.COMMIT)

    def _resolve(self, client: Client) -> bytes:
        """The end of a unit in doubt, by its id or its name, or of none."""
        r, in_doubt = self.random, self.instance.engine.in_doubt
        units = list(in_doubt.units.values())
        if not units and r.random() < 0.9:
            return self._take(client)
        said = r.choice(("one", "other", "none", "x" * 99)) if r.random() < 0.1 else ""
        if units and not said:
            unit = r.choice(units)
            said = unit.facts.name if unit.facts.name and r.random() < 0.3 else (
                in_doubt.name_of(unit))
        area = said.encode()
        return self._packed(client, Operation.RESOLVE, area, length=len(area),
                            want=int(r.random() < 0.8))

    def _stage(self, client: Client) -> bytes:
        return self._unit(client, Operation.STAGE)

    def _backout(self, client: Client) -> bytes:
        rows = [SETTLE.pack(Settlement.DONE, 0, 0, each.entry, each.qpool, each.lease, 0, 0, 0)
                for each in client.held.values()]
        client.held = {}
        return self._packed(client, Operation.BACKOUT, b"".join(rows), parts=len(rows), want=1)

    def _packed(self, client: Client, operation: int, area: bytes, **fields: Any) -> bytes:
        client.sequence += 1
        area = area[: len(client.live.request)]
        client.live.request[: len(area)] = area
        r = self.random
        if r.random() < self.odd / 5:
            fields["token"] = r.randbytes(16)
        raw = self.instance.packed(client, Operation(operation), **fields)
        if self.fuzz and r.random() < 0.7:
            raw = self._mutilated(client, raw)
        return raw

    def _mutilated(self, client: Client, raw: bytes) -> bytes:
        """Wrong bytes in a request and in the channel; the token often stays right."""
        r, made = self.random, bytearray(raw)
        for _ in range(r.choice((0, 1, 1, 2, 5))):
            name = r.choice([name for name in REQUEST.names if r.random() < 0.2
                             or name not in ("token", "client", "magic", "version", "sequence")])
            at = REQUEST.offset(name)
            made[at : at + 8] = r.choice((
                r.randbytes(1) + made[at + 1 : at + 8], r.randbytes(2) + made[at + 2 : at + 8],
                b"\xff" + made[at + 1 : at + 8], b"\xff" * 4 + made[at + 4 : at + 8],
                b"\0" * 4 + made[at + 4 : at + 8]))[: len(made) - at]
        area = client.live.request
        for _ in range(r.choice((0, 1, 1, 3))):
            at = r.randrange(min(r.choice((40, 128, 2000)), len(area) - 2))
            area[at : at + 2] = r.choice((r.randbytes(2), b"\xff\xff", b"\0\0"))
        if r.random() < 0.02:
            return bytes(made[: r.randrange(len(made) + 1)])
        if r.random() < 0.01:
            return bytes(made) + b"\0"
        return bytes(made)

    # a group

    def group(self) -> str:
        """One turn of the manager's loop with random work; the line that says what came of it."""
        r, instance = self.random, self.instance
        idle = [client for client in self.clients if client.live.waiter is None]
        for client in idle:
            if client.number in self.notes and client.held and r.random() < 0.3:
                self._note(client)
        batch = []
        for client in self._asking(idle):
            if self.back and client.queue and r.random() < 0.1:
                batch.append(self._commit(client))  # a reader's unit
                continue
            if self.refused and client.queue and r.random() < 0.1:
                batch.append(self._take(client))  # a reader's
                continue
            if (self.staged and client.number in UNITS and r.random() < 0.7
                    and client.live.party.active != len(client.held) + self._staged(client)[0]):
                batch.append(self._backout(client))
                continue
            if client.number in UNITS:
                batch.append(r.choices((self._take, self._commit, self._stage, self._backout,
                                        self._prepare, self._resolve),
                                       (5, 3, 5, 0.1, 2, 3) if self.staged else
                                       (5, 1, 0, 0.1, 4, 3) if self.back else
                                       (5, 3, self.odd, 0.3, 2, 3))[0](client))
                continue
            if self.numbered and r.random() < 0.8:
                room = self._messages() < MESSAGES * 2 // 3 and client.number != STRANGER
                batch.append((self._put_many if room and r.random() < 0.5 else self._next)(client))
                continue
            puts, nexts = 5, 0 if client.number == STRANGER else 9
            if (self.keyed or self.staged) and not self.quiet:  # limits hold up what is there
                puts = 5 if self._messages() < MESSAGES // 3 else 0
            if self.quiet:
                puts = 2 if self._messages() < MESSAGES // 2 else 0
                if len(idle) < len(self.clients) - 2:  # somebody must put if all others wait
                    puts, nexts = 1, 0
            kind = r.choices((self._put, self._put_many, self._next, self._move, self._ask),
                             (puts, puts, nexts, nexts / 2 or self.odd,
                              nexts / (9 if self.quiet else 4)))[0]
            batch.append(kind(client))
        if self.back and len(idle) < len(self.clients) and r.random() < 0.2:
            batch.append(self._commit(r.choice([each for each in self.clients
                                                if each not in idle])))  # of who waits
        self.requests += len(batch)
        instance.wall += r.choice((0, 1, 1000, 10**6))
        instance.mono += r.choice((0, 10**6, 10**7, 2 * 10**7) if self.quiet or self.keyed else (
            0, 1, 1000, 10**6, 10**6, 6 * 10**7))
        if r.random() < self.changing:
            self._patient = self.quiet and not self._patient
        self._ask_when()
        instance.server.group(batch, instance.wall, instance.mono, self._happen)
        instance.engine.poisoned.clear()
        for client in self.clients:
            self._took(client)
        line = self.line()
        if r.random() < self.changing:
            self._seldom()
        if self.limits and r.random() < 0.06:
            self._limit()
        if self.back and r.random() < 0.3:
            self._hold()
        return line

    def _messages(self) -> int:
        messages = self.instance.core.t.messages
        return messages.high - messages.top

    def _ask_when(self) -> None:
        """When the next turn is due: behind a full one just then when something will be, or the
        manager would turn in vain for ever."""
        server = self.instance.server
        core, due = self.instance.core, server.due()
        exact = due == GroupCommit.due(server)
        assert not self._turned or exact, "a deadline that is none"
        if exact or self._clocks is None:
            self._clocks = core.now_ns, core.mono_ns
        wall, mono = self._clocks
        now, core.now_ns = core.now_ns, wall + core.mono_ns - mono  # by one clock
        assert due <= GroupCommit.due(server), "a deadline that is late"
        core.now_ns, self._turned = now, False

    def _asking(self, idle: list[Client]) -> list[Client]:
        """Who asks in this group; quiet: nobody or a few, hardly ever of those whose requests are
        not plain."""
        r = self.random
        if not self.quiet:
            most = min(len(idle), 4) if self.keyed or self.numbered or self.staged else len(idle)
            units = [each for each in idle if (self.back or self.staged) and each.number in UNITS]
            asking = r.sample(idle, r.randrange(most + 1))
            return asking + [each for each in units if each not in asking]
        plain = [each for each in idle if each.queue in (A, B, C) or each.number in UNITS
                 or r.random() < self.odd]
        return r.sample(plain, min(len(plain), r.choice((0, 0, 0, 1, 1, 2, 3))))

    def _took(self, client: Client) -> None:
        """What the last reply handed to it: rows that the tables confirm (others are not rows)."""
        session, t = client.live, self.instance.core.t
        if session.gone or session.waiter is not None:
            return
        count = REPLY.unpack_from(session.reply)[4]
        room = (len(session.reply) - REPLY.size) // GIVEN.size  # of a put the count is no rows
        for i in range(min(count, room, 60)):
            row = dict(zip(GIVEN.names, GIVEN.unpack_from(
                session.reply, REPLY.size + i * GIVEN.size), strict=True))
            entry = row["entry"]
            if entry < t.entries.high and t.e_reader[entry] == session.party.slot + 1 \
                    and t.e_lease[entry] == row["lease"] and t.e_state[entry] == EntryState.ACTIVE:
                client.held[row["qpool"], row["queue"]] = Given(
                    entry, row["queue"], row["qpool"], row["lease"], 0, 0, b"")

    def _happen(self) -> bool:
        """Between the requests and the hand-outs: somebody leaves, dies or comes."""
        r, instance = self.random, self.instance
        if r.random() > self.leaving:
            return False
        client = r.choice(self.clients)
        session = client.live
        instance.server.carry_out(session)
        instance.end(session, died=r.random() < 0.6)
        self._gone = client
        return True

    _gone: Client | None = None

    def _seldom(self) -> None:
        """What changes the world around, between two groups."""
        r, instance = self.random, self.instance
        instance.core.space_left, instance.server.stopping = True, False
        instance.core.messages_total_max, instance.core.index_reserve = MESSAGES, 0
        what = r.choice((0, 5, 5, 6)) if self.quiet else r.randrange(11)
        if self.bounds and r.random() < 0.5:
            instance.wall += r.choice((1, 1800, 3600)) * NS
        elif what == 0:
            seconds = r.choice((1, 30, 3600))
            instance.wall += seconds * NS * r.choice((1, 1, 1, 9, -9, 0))  # or the clock is set
            instance.mono += seconds * NS
        elif what in (1, 8):
            queue = r.choice((A, D))
            known = instance.rules[queue]
            instance.rules[queue] = replace(known, get_allowed=not known.get_allowed,
                                            put_allowed=known.get_allowed or r.random() < 0.5)
            instance.group(lambda: instance.engine.books.define_queues(
                [instance.rules[queue]]))
        elif what in (2, 9):
            instance.core.space_left = False
        elif what in (3, 10):
            instance.core.messages_total_max = r.choice((5, 20))
            instance.core.index_reserve = r.choice((0, 4))
        elif what == 4:
            instance.server.stopping = True
        elif what == 5 and not self.fuzz:  # a fuzzer who owns the spool puts damage into it
            self.fast += _fast(instance)
            if r.random() < (0.1 if self.quiet else 0.4):
                instance.kill()
            else:
                instance.stop()
            instance.server.close()
            self._start()
        elif what in (6, 7):
            self._order()

    def _limit(self) -> None:
        """The limits of a queue change, or which of its keys are paused."""
        r, instance = self.random, self.instance
        queue = r.choice(sorted(self.limits))
        if r.random() < 0.5:
            limits = r.choice((None, *self.limits.values(), *[self.limits[queue]] * 5))
            if limits is not None and r.random() < 0.5:
                limits = replace(limits, in_work_max=r.choice((0, 1, 2, 4, 20)))
            instance.rules[queue] = replace(instance.rules[queue], limits=limits)
            instance.group(lambda: instance.engine.books.define_queues([instance.rules[queue]]))
            return
        texts = r.sample(("red", "blue", "g", "h", ""), r.choice((0, 1, 2, 3)))

        def paused() -> None:
            core = instance.core
            core.limits.pause(queue, texts, core.mono_ns)
            if queue in core.limited:
                limited.opened(core, core.limited[queue])

        instance.group(paused)

    def _order(self) -> None:
        r, t = self.random, self.instance.core.t
        entries = [e for e in range(t.entries.high) if t.e_state[e]]
        if not entries:
            return
        entry = r.choice(entries)
        action = r.choice((Action.HOLD, Action.RELEASE, Action.DELETE, Action.MOVE))
        self._ordered(entry, action, *(r.choice((A, D)),) if action is Action.MOVE else ())

    def _ordered(self, entry: int, action: Action, *targets: int) -> None:
        t = self.instance.core.t
        self.instance.order(Order(
            action, (Item(t.m_qpool[t.e_message[entry]], t.e_queue[entry]),), b"{}",
            targets=targets, force=t.e_state[entry] != EntryState.ACTIVE))

    def _hold(self) -> None:
        """What waits with the key of a message in doubt; or what is held is so no more."""
        r, core = self.random, self.instance.core
        t, keys = core.t, core.limits.keys
        doubted = {(t.e_queue[e], keys[e]) for e in range(t.entries.high if len(keys) else 0)
                   if t.e_state[e] == EntryState.PREPARED}
        wanted = EntryState.READY if r.random() < 0.7 else EntryState.HELD
        for entry in range(t.entries.high):
            if t.e_state[entry] == wanted and (wanted == EntryState.HELD or (
                    t.e_queue[entry], keys[entry] if len(keys) else 0) in doubted):
                self._ordered(
                    entry, Action.HOLD if wanted == EntryState.READY else Action.RELEASE)

    def settle_down(self) -> None:
        """Who left comes again."""
        if self._gone is not None:
            client, self._gone = self._gone, None
            self._register(client)

    # what came of it

    def line(self) -> str:
        """Digests of tables, writes, replies, memory."""
        replies = 0
        for client in self.clients:
            session = client.live
            if not session.gone:
                replies = crc32c(session.reply, replies)
                replies = crc32c(repr((
                    session.sequence, session.last, session.lost, session.waiter is None,
                    session.look_ns, sorted(session.noted),
                    session.party.active, session.party.pool_file,
                    cast(Any, session.channel).wake.rung)).encode(), replies)
        tables = crc32c(self._timeless())
        memory = crc32c(repr(self.memory()).encode())
        return f"{tables:08x} {self.disk.crc:08x} {replies:08x} {memory:08x}"

    def _timeless(self) -> memoryview:
        """The index, but not how long syncs took, only how many they were."""
        t = self.instance.core.t
        syncs = sum(t.j_syncs)
        t.v["j_syncs"][:] = t.counters[Counter.SYNC_US] = 0
        t.j_syncs[0] = syncs
        return t.buffer

    def memory(self) -> tuple[object, ...]:
        """What the engine keeps beside the tables."""
        engine, core = self.instance.engine, self.instance.core
        t, block, slots = core.t, core.block, cast(Any, core.slots)
        units = self.instance.server.units
        return (
            [(client, each.messages, each.bytes) for client, each in sorted(units.kept.items())],
            sorted((+units.bytes_by_user).items()),
            core.next_qpool, core.active, sorted(core.runnable), sorted(core.due),
            sorted(core.moments),
            sorted(core.leases),
            [(queue, sorted(lane.items())) for queue, lane in sorted(core.lanes.items())],
            sorted(core.runs.items()),
            sorted(core.suspects), core.failures.everything(),
            t.messages.high, t.messages.top, t.entries.high, t.entries.top,
            t.messages.v_stack[: t.messages.top].tolist(),
            t.entries.v_stack[: t.entries.top].tolist(), t.given,
            [(n, bytes(f.used), f.freed, f.live) for n, f in sorted(slots._files.items())],
            block.first_lsn, block.count, block.payload_bytes, block.next_qpool, block.persistent,
            len(block.payloads), len(block.puts), block.left, block.unsynced,
            sorted((due, turn) for due, turn, w in engine.timeouts.heap if w.waiting),
            [(q, [w.sequence for w in line.main], [w.sequence for w in line.auxiliary])
             for q, line in sorted(engine.waiters.items())],
            [(q, sorted((w, list(each)) for w, each in line.waiting.items()), line.again)
             for q, line in sorted(engine.wanted.lines.items())], sorted(core.watched.items()),
            sorted(engine.parties), sorted(engine.limbo.items()),
            sorted(cast(Any, core.volatile).live.items()),
            sorted(core.times.wheel.waiting()), sorted(core.times.loaded.waiting()),
            core.times.over.tolist()[: t.messages.high],
            sorted(core.groups.fronts.items()), core.groups.waiting.tolist(),
            [(group, each.members, sorted(each.lasts.items()))
             for group, each in sorted(core.groups.numbered.items())],
            [(slot, core.groups.keys[slot], core.groups.numbers[slot])
             for slot in range(t.messages.high if core.groups.used else 0)
             if t.m_qpool[slot] and t.m_flags[slot] & GROUPED],
            sorted((q, list(c.sizes.items())) for q, c in core.groups.candidates.items()),
            sorted(core.duplicates.items()),
            sorted((number, unit.qpool, repr(unit.facts), unit.since_ns, unit.own, unit.entries)
                   for number, unit in engine.in_doubt.units.items()), engine.in_doubt._ended,
            [(entry, sorted(live)) for entry, live in sorted(core.barriers.waiting.items())],
            sorted(core.barriers.members.items()), list(core.barriers.due.items()),
            core.times.behind, sorted(core.times.came_back), sorted(core.times.expired.items()),
            limits_known(core),
        )


def limits_known(core: Core) -> list[object]:
    """What is known of limits: keys, who stands where, whose turn it is."""
    out: list[object] = []
    for number, limits in sorted(core.limited.items()):
        out += [number, limits.full, list(limits.refused)]
        if (turns := limits.turns) is not None:
            out += [turns.ready, [key.name for key in turns.ring], sorted(turns.paused),
                    sorted((time, key.name) for time, key in turns.due),
                    [(key.name, key.count, key.in_work, sorted(key.line), key.full, key.turned,
                      key.paused, key.at, key.wakes) for _, key in sorted(turns.keys.items())],
                    [(entry, core.limits.keys[entry]) for entry in range(core.t.entries.high)
                     if core.t.e_state[entry] and core.t.e_queue[entry] == number]]
    return out


def _fast(instance: Instance) -> int:
    return instance.server.fast if isinstance(instance.server, FastServer) else 0


def main(arguments: list[str]) -> int:
    """Print a line a group, then how many requests there were."""
    folder, seed, groups, *rest = arguments
    clock.wall_ns = lambda: 1_700_000_000 * NS
    expiry.PER_GROUP = 1 if "numbered" in rest else 2  # type: ignore[misc]
    most = 30 + int(int(groups) * GROUP_CPU_S)
    resource.setrlimit(resource.RLIMIT_CPU, (most, most))
    work = Workload(Path(folder), int(seed), fuzz="fuzz" in rest, quiet="quiet" in rest,
                    limits=LIMITS if "limited" in rest else UNRATED if "keyed" in rest else {},
                    back="back" in rest, numbered="numbered" in rest, refused="refused" in rest,
                    barriers="barriers" in rest, members="members" in rest,
                    bounds="bounds" in rest, staged="staged" in rest)
    for _ in range(int(groups)):
        print(work.group())
        work.settle_down()
    fast = work.fast + _fast(work.instance)
    print(f"requests {work.requests} full {work.full}", file=sys.stderr)
    print(f"form {work.instance.server.form} fast {fast} of {work.requests}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
