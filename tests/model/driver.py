"""The engine and the reference side by side: every request goes to both, and both must agree.

`World` has one method for each thing that can happen; the state machine of test_model chooses among
them. Each ends in `verify`: the invariants hold, and every queue says the same on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from omq.base import errors
from omq.base.checksum import crc32c
from omq.core.check.invariants import check
from omq.core.engine.barriers import BARRIER, MEMBER
from omq.core.engine.failures import NOTED
from omq.core.engine.groups import GROUPED
from omq.core.engine.operate import Action, Order
from omq.core.engine.operate import Item as Targeted
from omq.core.engine.reader_notes import ReaderNote, read
from omq.core.engine.rules_of_queue import QueueRules
from omq.core.engine.state import (
    CONTAINER,
    HAS_ID,
    IDEL,
    PERSISTENT,
    POISON,
    REMEMBERS,
    REPLAYED,
    SPECIAL_QUEUES,
)
from omq.core.load.recovery import Recovered
from omq.fast.reader_note import Note
from omq.format.failure_note import NOTE
from omq.format.index import Counter, EntryState
from omq.format.members import MEMBERS, before_text, members_text
from omq.format.message import (
    DESCRIPTOR,
    Descriptor,
    Part,
    derived_id,
    encode,
    encode_properties,
    id_hash,
    pack_parts,
)
from omq.format.pool import PART, RECORD, RECORD_BYTES, lease_tag
from omq.format.wire import SETTLE, Key, Operation, PutFlag, Settlement
from omq.ipc.wire.outgoing import Encoded
from omq.storage import durable
from omq.storage.slots import SlotAllocator
from tests.model.disk import Cut, LossyDisk
from tests.model.instance import DOUBTS, ENTRIES, MESSAGES, NS, Client, Instance
from tests.model.reference import (
    ACTIVE,
    DEFERRED,
    Draft,
    Item,
    Pairs,
    Place,
    Reference,
    Refusal,
    Verdict,
    Wish,
)

A, B, C = 3, 4, 5
WIDE = range(6, 26)
LATE = 6  # those that are too late for A
FAILED = 7  # those that have failed on C
NOTED_PLACES_MAX = (RECORD_BYTES - RECORD.size - NOTE.size) // PART.size
READERS = ((A, False), (A, True), (B, False), (C, False), (POISON, False), (IDEL, False))
Row = tuple[int, int, int, int, int, int, int | None]
Given = dict[int, list[tuple[Item, Place]]]


def rules() -> list[QueueRules]:
    """Queues of different limits: A as configured by default, B with a lease, C narrow."""
    special = [QueueRules(queue, name, 1 << 32, 1 << 20) for queue, name in SPECIAL_QUEUES.items()]
    narrow = QueueRules(C, "C", 8, 400, attempts_max=1, death_delay_ns=0, expiry_ns=50 * NS,
                        dead_letter=FAILED)
    return [*special, QueueRules(A, "A", 1 << 20, 1 << 20, expired_to=LATE,
                                    retry_delay_ns=3 * NS + 7, backoff="exponential",
                                    retry_max_ns=10 * NS, dedupe_ns=40 * NS,
                                    dedupe_keys_max=3), narrow,
            QueueRules(B, "B", 1 << 20, 1 << 20, attempts_max=3, death_delay_ns=5 * NS,
                       lease_ns=20 * NS, backoff="linear", retry_max_ns=100 * NS,
                       dedupe_ns=4000 * NS, absorbs=False, dedupe_keys_max=3),
            *(QueueRules(queue, f"W{queue}", 1 << 20, 1 << 20, expires=queue not in (LATE, FAILED))
              for queue in WIDE)]


def encoded(draft: Draft, *, given: bytes = b"", correlation: bytes = b"") -> Encoded:
    """The draft as a submitter sends it."""
    several = len(draft.parts) > 1 or draft.parts[0].until
    flags = (PutFlag.PERSISTENT if draft.persistent else 0) | (
        PutFlag.CONTAINER if draft.container else 0) | (PutFlag.GIVEN_ID if given else 0) | (
        PutFlag.GROUPED if draft.group else 0) | (
        PutFlag.BARRIER if draft.names or draft.before else 0)
    return Encoded(draft.parts[0].queue, draft.parts[0].priority, int(flags), draft.size,
                   crc32c(draft.payload), id_hash(correlation), id_hash(given), draft.expiry,
                   len(draft.parts) if several else 0, draft.payload)


def draft(parts: Sequence[Part], body: bytes, *, persistent: bool = True, container: bool = False,
          given: bytes = b"", correlation: bytes = b"", expiry: int = 0, group: bytes = b"",
          number: int = 0, properties: bytes = b"") -> Draft:
    """A message to be, with its payload."""
    several = len(parts) > 1 or parts[0].until
    descriptor = Descriptor(message_id=given.ljust(24, b"\0"), expiry=expiry,
                            correlation_id=correlation.ljust(24, b"\0"),
                            group_id=group.ljust(24, b"\0"), group_sequence=number)
    payload = encode(descriptor, parts if several else [], properties, body)
    return Draft(list(parts), payload, len(body), persistent, container and persistent, expiry,
                 id_hash(given), id_hash(correlation), id_hash(group), given, number)


def barrier(part: Part, names: Sequence[int] = (), before: int = 0) -> Draft:
    """One for these members, or for so many of its request."""
    text = before_text(before) if before else members_text(names)
    one = draft([part], b"all are done", properties=encode_properties({MEMBERS: text}))
    one.names, one.before = tuple(sorted(set(names))), before
    return one


class _Left:
    """A note of which only the bytes are left."""

    def __init__(self, area: bytes) -> None:
        self._area = area

    def is_final(self) -> bool:
        return True

    def read(self) -> ReaderNote | None:
        return read(self._area)

    def close(self) -> None:
        return None


class World:
    """See the module."""

    readers: tuple[tuple[int, bool], ...] = READERS

    def __init__(self, root: Path) -> None:
        self.disk = LossyDisk()
        self.before = durable.use(self.disk)
        self.instance = self.make_instance(root)
        self.model = Reference(self.instance.rules, MESSAGES, ENTRIES)
        self.model.doubts_max = DOUBTS
        self.model.choose = self._chosen
        self.clients = [Client(n, *reader) for n, reader in enumerate(self.readers)]
        self.highest = 0  # QPoolId ever given
        self.answers: dict[int, bytes] = {}  # correlation ids of replies, by their hash
        self._last_lsn = 0  # before the group that dies
        self._start(clean=True)
        self._return()

    def make_instance(self, root: Path) -> Instance:
        return Instance(root, rules())

    def close(self) -> None:
        """Let go of everything."""
        self.disk.die(lambda count: count)
        durable.use(self.before)

    # groups

    @property
    def _clock(self) -> tuple[int, int]:
        return self.instance.wall, self.instance.mono

    def group(self, *work: Callable[[], None]) -> None:
        """The manager's loop once."""
        self.model.wall, self.model.mono = self._clock
        self.instance.group(*work)

    def finish(self) -> None:
        """The end of a group, and both sides are compared."""
        self._end_group()
        self.verify()

    def _end_group(self) -> None:
        """What time and readers do at the end of a group, on the model; who was answered what."""
        model = self.model
        model.wall, model.mono = self._clock
        model.tick()
        answers = model.dispatch()
        waiting = {wish.client for wish in model.wishes}
        for client in self.clients:
            reply = self.instance.reply(client) if client.session else None
            if client.number in answers:
                self._compare_given(client, answers[client.number], reply)
            elif client.number in waiting:
                assert reply is None, (client.number, reply)

    def _compare_given(self, client: Client, pairs: Sequence[tuple[Item, Place]],
                       reply: object) -> None:
        assert isinstance(reply, tuple), reply
        given = self.instance.take(client, reply[0])
        expected = [(item.qpool, place.queue, max(0, place.attempts - 1), place.retries,
                     item.payload) for item, place in pairs]
        assert [(g.qpool, g.queue, g.attempts, g.retries, g.payload) for g in given] == expected
        for each, (_, place) in zip(given, pairs, strict=True):
            place.lease = each.lease

    def _chosen(self, client: int, groups: list[Pairs]) -> Pairs:
        """The whole group that its reader was given; another one of them if it was none of them,
        which the comparison then says."""
        rows = self.instance.given_rows(self.clients[client])
        given = {qpool for qpool, _ in rows}
        return next((group for group in groups if {item.qpool for item, _ in group} == given),
                    groups[0])

    def verify(self) -> None:
        """Both sides say the same, and nothing is broken."""
        instance, model = self.instance, self.model
        parties = [client.live.party for client in self.clients]
        assert check(instance.engine, parties) == []
        rows = self.rows()
        expected: dict[int, list[Row]] = {}
        for queue in model.rules:
            self._untie(queue, rows.get(queue, []))
            found = [(item.qpool, place.priority, int(place.state), place.attempts, place.retries,
                      place.until_ns if place.state is DEFERRED else 0,
                      place.client if place.state is ACTIVE else None)
                     for item, place in model.on(queue)]
            if found:
                expected[queue] = sorted(found) if queue == IDEL else found
        if IDEL in rows:
            rows[IDEL].sort()
        assert rows == expected, [(q, rows.get(q), expected.get(q)) for q in model.rules
                                  if rows.get(q) != expected.get(q)]
        self._verify_slots()
        t = instance.core.t
        assert int(t.v["q_waits"].sum()) == t.counters[Counter.GIVES]  # no queue goes here
        assert {t.m_qpool[m] for m in range(t.messages.high)} - {0} == model.items.keys()
        members = {qpool for each in model.waiting() for qpool in each.live}
        for item in model.items.values():
            m = t.slot_of(item.qpool)
            flags = PERSISTENT * item.persistent | CONTAINER * item.container
            flags |= REPLAYED * item.replayed | GROUPED * bool(item.group)
            flags |= REMEMBERS * bool(item.remembers)
            # On so many queues its record may have had no room for the note.
            forgets = item.started and item.most_places > NOTED_PLACES_MAX
            noted = bool(item.failed_on) and not (forgets and not t.m_flags[m] & NOTED)
            flags |= NOTED * noted | MEMBER * (item.qpool in members)
            flags |= BARRIER * (item.qpool in model.barriers)
            assert (t.m_origin[m], t.m_size[m], t.m_flags[m] & ~HAS_ID, t.m_expiry[m]) == (
                item.origin, item.size, flags, item.expiry), item
            if noted and item.failed is not None:
                note = instance.engine.failures.of(item.qpool, item.failed[1].queue)
                assert note is not None and note.queue == model.rules[item.failed_on].name

    def _untie(self, queue: int, rows: Sequence[Row]) -> None:
        """Messages that reached POISON in one step: in the order in which they stand there."""
        position = {row[0]: i for i, row in enumerate(rows)}
        for item, place in self.model.on(queue):
            if place.tied and item.qpool in position:
                place.order += position[item.qpool] / 1e4
                place.tied = False

    def _verify_slots(self) -> None:
        """Pool slots in use are those of messages, no more."""
        core = self.instance.core
        t, slots = core.t, core.slots
        assert isinstance(slots, SlotAllocator)
        wanted = sum(core.runs.get(m, 1) for m in range(t.messages.high)
                     if t.m_qpool[m] and t.m_flags[m] & 1)
        assert sum(slots.live(file) for file in slots.files()) == wanted

    def rows(self) -> dict[int, list[Row]]:
        """What the index says of each queue, in the order of hand-out."""
        t = self.instance.core.t
        slots = {client.live.party.slot: client.number for client in self.clients}
        found: dict[int, list[tuple[int, int, Row]]] = {}
        for e in range(t.entries.high):
            state = t.e_state[e]
            if not state:
                continue
            reader = slots[t.e_reader[e] - 1] if t.e_reader[e] else None
            until = t.e_until[e] if state == EntryState.DEFERRED else 0
            row = (t.m_qpool[t.e_message[e]], t.e_priority[e], state, t.e_attempts[e],
                   t.e_retries[e], until, reader)
            found.setdefault(t.e_queue[e], []).append((-t.e_priority[e], t.e_sequence[e], row))
        return {queue: [row for _, _, row in sorted(rows)] for queue, rows in found.items()}

    # clients

    def idle(self) -> list[Client]:
        """Clients without a request under way."""
        waiting = {wish.client for wish in self.model.wishes}
        return [client for client in self.clients if client.number not in waiting]

    def outcome(self, client: Client, refusal: type[errors.OmqError] | None
                ) -> tuple[int, int, int] | None:
        """The reply, compared with what the model expects; None when it was refused."""
        reply = self.instance.reply(client)
        if refusal is None:
            assert isinstance(reply, tuple), reply
            return reply
        assert type(reply) is refusal, (reply, refusal)
        return None

    def _new_id(self, qpool: int, count: int = 1) -> None:
        assert qpool > self.highest, "an id was given twice"
        self.highest = qpool + count - 1

    def put(self, client: Client, one: Draft, given: bytes = b"", correlation: bytes = b"") -> None:
        """One message."""
        self.model.wall, self.model.mono = self._clock
        refusal = self.model.refusal_of_barrier(one, self.highest) or self.model.check(one)
        self.group(lambda: self._put(client, encoded(one, given=given, correlation=correlation)))
        reply = self.outcome(client, refusal)
        if reply is not None and not self.model.absorbs(one):
            self._new_id(reply[1], 1 + len(self.model.watching(one)))
            self.model.put(one, reply[1])
            if one.persistent:
                client.carried = (client.sequence, reply[1])
        self.finish()

    def _put(self, client: Client, e: Encoded) -> None:
        self.instance.request(
            client, Operation.PUT, area=e.payload, queue=e.queue, priority=e.priority,
            flags=e.flags, length=len(e.payload), size=e.size, crc=e.crc, want=e.key,
            correlation=e.correlation, parts=e.parts, expiry=e.expiry)

    def put_many(self, client: Client, drafts: Sequence[Draft]) -> None:
        """A batch on one queue."""
        refusal = self.model.check_many(drafts)
        self.group(lambda: self._put_many(client, drafts))
        reply = self.outcome(client, refusal)
        if reply is not None:
            self._new_id(reply[1], len(drafts))
            for i, one in enumerate(drafts):
                self.model.put(one, reply[1] + i)
            if any(one.persistent for one in drafts):
                client.carried = (client.sequence, reply[1])
        self.finish()

    def _put_many(self, client: Client, drafts: Sequence[Draft]) -> None:
        ready = [encoded(one) for one in drafts]
        heads, at = [], 0
        for e in ready:
            heads.append(e.head(at))
            at += len(e.payload)
        self.instance.request(
            client, Operation.PUT_MANY, area=b"".join([*heads, *(e.payload for e in ready)]),
            queue=ready[0].queue, count=len(ready), length=at)

    def settle(self, client: Client, verdicts: Sequence[Verdict], *, want: int = 0,
               timeout_s: int = -1, by: int = 0, key: int = 0) -> None:
        """Settlements, and perhaps a wish for more, or for messages with one key."""
        rows = self._settlements(client, verdicts)
        operation = Operation.GET if by else Operation.NEXT if want else Operation.SETTLE
        argument = timeout_s * 1000 if timeout_s >= 0 else -1
        self.group(lambda: self.instance.request(
            client, operation, area=rows, count=len(verdicts), want=want, argument=argument,
            flags=by, correlation=key))
        self.model.mono = self.instance.mono
        lost = self.model.settle(client.number, verdicts)
        for v in verdicts:
            self._let_go(client, v)
        if want:
            deadline = self.instance.mono + timeout_s * NS if timeout_s >= 0 else None
            self.model.wait(Wish(client.number, client.queue, want, deadline, client.auxiliary,
                                 by, key))
        else:
            reply = self.outcome(client, None)
            assert reply is not None and reply[2] == lost, (reply, lost)
        self.finish()

    def ask(self, client: Client, verdicts: Sequence[Verdict], one: Draft, timeout_s: int) -> None:
        """Settlements, a request, and the wait for its reply."""
        self.model.wall, self.model.mono = self._clock
        refusal = self.model.check(one)
        self.group(lambda: self._ask_for(client, verdicts, one, timeout_s))
        if refusal is not None:
            self.outcome(client, refusal)
        else:
            sequence, _, qpool, _ = client.live.last
            assert sequence == client.sequence, "it was put, and nobody would be told"
            self._asked(client, verdicts, one, qpool)
            deadline = self.instance.mono + timeout_s * NS if timeout_s >= 0 else None
            answer = derived_id(self.instance.core.uuid, qpool)
            self.answers[id_hash(answer)] = answer
            self.model.wait(Wish(client.number, client.queue, 1, deadline, client.auxiliary,
                                 Key.CORRELATION, id_hash(answer)))
        self.finish()

    def _ask_for(self, client: Client, verdicts: Sequence[Verdict], one: Draft, timeout_s: int
                 ) -> None:
        e = encoded(one)
        self.instance.request(
            client, Operation.ASK, area=self._settlements(client, verdicts) + e.payload,
            count=len(verdicts), queue=e.queue, priority=e.priority, flags=e.flags,
            length=len(e.payload), size=e.size, crc=e.crc, want=1, expiry=e.expiry,
            correlation=e.correlation, argument=timeout_s * 1000 if timeout_s >= 0 else -1)

    def _asked(self, client: Client, verdicts: Sequence[Verdict], one: Draft, qpool: int) -> None:
        self.model.mono = self.instance.mono
        self.model.settle(client.number, verdicts)
        for v in verdicts:
            self._let_go(client, v)
        self._new_id(qpool)
        self.model.put(one, qpool)
        if one.persistent:
            client.carried = (client.sequence, qpool)

    def _settlements(self, client: Client, verdicts: Sequence[Verdict]) -> bytes:
        return b"".join(SETTLE.pack(v.kind, 0, 0, self._entry(client, v), v.qpool, v.lease,
                                    v.delay_ns, 0, 0) for v in verdicts)

    @staticmethod
    def _entry(client: Client, verdict: Verdict) -> int:
        held = client.held.get((verdict.qpool, verdict.queue))
        return held.entry if held else 0

    def move(self, client: Client, verdict: Verdict, parts: Sequence[Part],
             new: Sequence[Draft]) -> None:
        """One atomic disposition."""
        refusal = self.model.check_move(client.number, verdict, parts, new)
        entry = self._entry(client, verdict)
        self.group(lambda: self._move(client, entry, verdict, parts, new))
        reply = self.outcome(client, refusal)
        if reply is not None:
            self._moved(client, verdict, parts, new, reply[1])
        self.finish()

    def _move(self, client: Client, entry: int, verdict: Verdict, parts: Sequence[Part],
              new: Sequence[Draft]) -> None:
        ready = [encoded(one) for one in new]
        heads, at = [], 0
        for e in ready:
            heads.append(e.head(at))
            at += len(e.payload)
        area = b"".join([SETTLE.pack(0, 0, 0, entry, verdict.qpool, verdict.lease, 0, 0, 0),
                         pack_parts(parts), *heads, *(e.payload for e in ready)])
        self.instance.request(client, Operation.MOVE, area=area, parts=len(parts),
                              count=len(ready), length=at)

    def _moved(self, client: Client, verdict: Verdict, parts: Sequence[Part],
               new: Sequence[Draft], qpool: int) -> None:
        client.held.pop((verdict.qpool, verdict.queue), None)
        self.model.move(verdict, parts)
        if new:
            self._new_id(qpool, len(new))
        for i, one in enumerate(new):
            self.model.put(one, qpool + i)

    def move_many(self, client: Client, moves: Sequence[tuple[Verdict, Sequence[Draft]]]) -> None:
        """The dispositions of a batch, by one request."""
        refusal = self.check_many(client, moves)
        self.group(lambda: self._ask_many(client, moves))
        reply = self.outcome(client, refusal)
        if reply is not None:
            self._moved_many(client, moves, reply[1])
        self.finish()

    def check_many(self, client: Client, moves: Sequence[tuple[Verdict, Sequence[Draft]]]
                   ) -> Refusal:
        if not client.queue or not moves:
            return errors.BadRequest
        return self.model.check_unit(client.number, [verdict for verdict, _ in moves],
                                     [one for _, new in moves for one in new])

    def _ask_many(self, client: Client, moves: Sequence[tuple[Verdict, Sequence[Draft]]]) -> None:
        ready = [encoded(one) for _, new in moves for one in new]
        heads, at = [], 0
        for e in ready:
            heads.append(e.head(at))
            at += len(e.payload)
        rows = [SETTLE.pack(Settlement.DONE, 0, 0, self._entry(client, v), v.qpool, v.lease,
                            len(new), 0, 0) for v, new in moves]
        self.instance.request(
            client, Operation.MOVE_MANY, parts=len(rows), count=len(ready), length=at,
            area=b"".join([*rows, *heads, *(e.payload for e in ready)]))

    def _moved_many(self, client: Client, moves: Sequence[tuple[Verdict, Sequence[Draft]]],
                    qpool: int) -> None:
        for verdict, _ in moves:
            client.held.pop((verdict.qpool, verdict.queue), None)
        if count := sum(len(new) for _, new in moves):
            self._new_id(qpool, count)
        for verdict, new in moves:
            self.model.commit([verdict])
            for one in new:
                self.model.put(one, qpool)
                qpool += 1

    def commit_unit(self, client: Client, taken: Sequence[Verdict], new: Sequence[Draft],
                    parts: int) -> None:
        """A unit of work, sent in so many parts."""
        in_order = [one for part in range(parts) for one in new[part::parts]]
        refusal = self.model.check_unit(client.number, taken, in_order)
        ready = [encoded(one) for one in new]
        for part in range(parts - 1):
            self._part(client, Operation.STAGE, taken[part::parts], ready[part::parts], (0, 0))
            assert isinstance(self.instance.reply(client), tuple)
            self.finish()
        self._part(client, Operation.COMMIT, taken[parts - 1 :: parts], ready[parts - 1 :: parts],
                   (len(taken), len(new)))
        reply = self.outcome(client, refusal)
        if reply is not None:
            for verdict in taken:
                client.held.pop((verdict.qpool, verdict.queue), None)
            self.model.commit(taken)
            if new:
                self._new_id(reply[1], len(new))
            for i, one in enumerate(in_order):
                self.model.put(one, reply[1] + i)
        self.finish()

    def _part(self, client: Client, operation: Operation, taken: Sequence[Verdict],
              ready: Sequence[Encoded], total: tuple[int, int]) -> None:
        self.group(lambda: self._ask_part(client, operation, taken, ready, total))

    def _ask_part(self, client: Client, operation: Operation, taken: Sequence[Verdict],
                  ready: Sequence[Encoded], total: tuple[int, int]) -> None:
        heads, at = [], 0
        for e in ready:
            heads.append(e.head(at))
            at += len(e.payload)
        area = b"".join([self._settlements(client, taken), *heads, *(e.payload for e in ready)])
        self.instance.request(
            client, operation, area=area, parts=len(taken), count=len(ready), length=at,
            argument=total[0], want=total[1])

    def prepare_unit(self, client: Client, taken: Sequence[Verdict], new: Sequence[Draft],
                     cut: int | None = None, keep: Callable[[int], int] = lambda count: count
                     ) -> None:
        """The first phase; the manager may die in it."""
        refusal = self.model.check_prepare(client.number, taken, new)
        ready = [encoded(one) for one in new]

        def ask() -> None:
            self._ask_part(client, Operation.PREPARE, taken, ready, (len(taken), len(new)))

        def apply(first: int) -> None:
            for verdict in taken:
                client.held.pop((verdict.qpool, verdict.queue), None)
            self._new_id(first, 1 + len(new))
            payload = self.instance.body(first)
            own = Item(first, payload, len(payload) - DESCRIPTOR.size)
            self.model.prepare(own, taken, [(first + 1 + i, one) for i, one in enumerate(new)])
            client.carried = (client.sequence, first)

        if cut is not None:
            if refusal is None:
                self.crash_in_request(
                    client, ask, apply, cut, keep,
                    lambda: self.model.check_prepare(client.number, taken, new))
            return
        self.group(ask)
        reply = self.outcome(client, refusal)
        if reply is not None:
            apply(reply[1])
        self.finish()

    def end_unit(self, client: Client, own: int, *, commit: bool, cut: int | None = None,
                 keep: Callable[[int], int] = lambda count: count) -> None:
        """The second phase, by anybody; the manager may die in it."""
        name = derived_id(self.instance.uuid.ljust(16, b"\0"), own).hex().encode()

        def ask() -> None:
            self.instance.request(client, Operation.RESOLVE, area=name, length=len(name),
                                  want=int(commit))

        def apply(_: int) -> None:
            self.model.resolve(own, commit=commit)

        if cut is not None:
            self.crash_in_request(client, ask, apply, cut, keep)
            return
        self.group(ask)
        assert self.outcome(client, None) is not None
        apply(own)
        self.finish()

    def back_out(self, client: Client, taken: Sequence[Verdict]) -> None:
        """What a unit took comes back."""
        self.group(lambda: self.instance.request(
            client, Operation.BACKOUT, area=self._settlements(client, taken), parts=len(taken),
            want=1))
        reply = self.outcome(client, None)
        assert reply is not None and reply[0] == self.model.back_out(client.number, taken)
        for verdict in taken:
            self._let_go(client, verdict)
        self.finish()

    @staticmethod
    def _let_go(client: Client, verdict: Verdict) -> None:
        """The client holds it no more, unless it named another lease than its own."""
        key = (verdict.qpool, verdict.queue)
        if key in client.held and client.held[key].lease == verdict.lease:
            del client.held[key]

    def repeat(self, client: Client) -> None:
        """A request number that was used before."""
        instance = self.instance
        raw = instance.packed(client, Operation.PUT, queue=A, flags=1)
        self.group(lambda: instance.server.handle(raw))
        self.outcome(client, errors.SequenceReused)
        self.finish()

    def note(self, client: Client, said: Sequence[Verdict], in_work: Sequence[int], *, listed: bool
             ) -> list[int]:
        """What a reader notes before it dies; the leases that it then had in work."""
        client.live.prompt = True
        note, held = Note(), {each.lease for each in client.held.values()}
        note.attach(client.live.note, int.from_bytes(client.token[:8], "little"))
        rows = self._settlements(client, said)
        for at in range(0, len(rows), SETTLE.size):
            assert note.settled(rows[at : at + SETTLE.size])
        for lease in in_work[:1]:
            note.current(lease)
        for lease in in_work[1:]:
            assert note.also_in_work(0, 0, lease)
        left = held - {verdict.lease for verdict in said}
        if listed and left:
            note.listed(max(held))
            return list(left.intersection(in_work) or left)
        return list(in_work)

    def leave(self, client: Client, *, died: bool, said: Sequence[Verdict] = (),
              in_work: Sequence[int] | None = None, listed: bool = False,
              then: int | None = None) -> None:
        """A client ends, with a note or without; another process takes its place, perhaps on
        another queue (`then`)."""
        session = client.live
        if in_work is not None:
            in_work = self.note(client, said, in_work, listed=listed)
        self.model.wall, self.model.mono = self._clock
        self.model.leave(client.number, died=died, said=said, in_work=in_work)
        self.group(lambda: self.instance.end(session, died=died))
        client.session, client.token, client.sequence = None, b"", 0
        client.carried = (0, 0)
        client.held.clear()
        self._end_group()
        client.queue = client.queue if then is None else then
        self.instance.register(client)
        self.finish()

    def order(self, order: Order) -> None:
        """An operator's command about one message."""
        (item,) = order.items
        refusal = self.model.refusal(order, item.qpool, item.queue)
        self.model.wall, self.model.mono = self._clock
        outcome = self.instance.order(order)
        if refusal is None:
            assert outcome.done == [item.qpool], outcome.refused
            self.model.operate(order, item.qpool, item.queue)
        else:
            assert [type(error) for _, error in outcome.refused] == [refusal], outcome
        self.finish()

    def delete_everywhere(self, item: Item) -> None:
        """One order: off all its queues."""
        order = Order(Action.DELETE, tuple(Targeted(item.qpool, queue) for queue in item.places),
                      b"{}", force=True)
        self.model.wall, self.model.mono = self._clock
        assert len(self.instance.order(order).done) == len(order.items)
        for each in order.items:
            self.model.operate(order, each.qpool, each.queue)
        self.finish()

    # the world around

    def advance(self, seconds: int) -> None:
        self.instance.wall += seconds * NS
        self.instance.mono += seconds * NS
        self.group()
        self.finish()

    def jump(self, seconds: int) -> None:
        """Somebody sets the clock."""
        self.instance.wall += seconds * NS
        self.group()
        self.finish()

    def define(self, changed: QueueRules) -> None:
        """A reload."""
        self.instance.rules[changed.queue] = changed
        self.group(lambda: self.instance.engine.books.define_queues([changed]))
        self.finish()

    def limit(self, total: int, *, space_left: bool, reserve: int = 0) -> None:
        """Fewer messages are allowed; the disk is full, or not."""
        self.instance.total_max = self.model.total_max = total
        self.instance.reserve = self.model.reserve = reserve
        self.instance.core.messages_total_max = total
        self.instance.core.index_reserve = reserve
        self.instance.core.space_left = self.model.space_left = space_left

    def checkpoint(self, cut: int | None = None,
                   keep: Callable[[int], int] = lambda count: count) -> None:
        """pool.writer's work; everything dies at the `cut`-th write."""
        self.disk.cut = cut
        try:
            self.instance.checkpoint()
        except Cut:
            self.crash(keep, survive=True)
            return
        self.disk.cut = None
        self.group()
        self.finish()

    # restarts

    def _start(self, *, clean: bool) -> None:
        found = self.instance.start()
        assert found.clean == clean
        self._started(clean=clean)

    def _started(self, *, clean: bool) -> None:
        """The manager is there again: so is the model."""
        recovered = self.instance.recovered
        assert recovered is not None and recovered.next_qpool > self.highest
        self.highest = recovered.next_qpool - 1
        self.model.restart(clean=clean)
        self._order_of_idel()
        self.model.limbo_until = self.instance.mono + 30 * NS
        self.instance.core.space_left = self.model.space_left
        assert self.instance.doubts_said == []
        in_doubt = self.instance.engine.in_doubt
        assert {unit.qpool: in_doubt.counts(unit) for unit in in_doubt.units.values()} == {
            own: (len(doubt.taken), sum(len(self.model.items[put].places) for put in doubt.put))
            for own, doubt in self.model.doubts.items()}
        for item in self.model.items.values():
            assert self.instance.body(item.qpool) == item.payload
        for client in self.clients:
            client.session = None
            sequence, qpool = client.carried
            if sequence:
                known = recovered.clients[int.from_bytes(client.token[:8], "little")]
                assert known.sequence > sequence or (known.sequence, known.qpool) == (
                    sequence, qpool), "what it asked for could be carried out twice"

    def _order_of_idel(self) -> None:
        """Over a start no order is promised there: it is as it stands."""
        t = self.instance.core.t
        sequences = {t.m_qpool[t.e_message[e]]: t.e_sequence[e] for e in range(t.entries.high)
                     if t.e_state[e] and t.e_queue[e] == IDEL}
        on_it = self.model.on(IDEL)
        orders = sorted(place.order for _, place in on_it)
        on_it.sort(key=lambda pair: sequences.get(pair[0].qpool, 0))
        for number, (_, place) in enumerate(on_it):
            place.order = orders[number] + number / 1e6  # what came there at once has one order

    def restart(self) -> None:
        """In order."""
        self.model.wall, self.model.mono = self._clock
        self.instance.stop()
        self._start(clean=True)
        self._return()

    def crash(self, keep: Callable[[int], int], *, survive: bool,
              noted: tuple[Client, Sequence[Verdict], Sequence[int]] | None = None) -> None:
        """The manager dies between two groups; `keep` of the unsynced writes of a file stay.
        `noted`: a reader that dies with it leaves a note of this."""
        self.model.wall, self.model.mono = self._clock
        if noted is not None:
            client, said, in_work = noted
            self.note(client, said, in_work, listed=False)
            left = bytes(client.live.note)
        self.disk.die(keep)
        self._start(clean=False)
        if noted is not None:
            self._left_note(client, said, in_work, left)
        if not survive:
            for client in self.clients:
                client.token, client.sequence, client.carried = b"", 0, (0, 0)
                client.held.clear()
        self._return()

    def _left_note(self, client: Client, said: Sequence[Verdict], in_work: Sequence[int],
                   left: bytes) -> None:
        """The new manager has the note of a reader that is gone; so has the model."""
        token = int.from_bytes(client.token[:8], "little")
        engine, t = self.instance.engine, self.instance.core.t
        engine.old_notes.by_token[token] = _Left(left)
        verdicts = {(verdict.qpool, verdict.queue): verdict for verdict in said}
        for entry, tag in engine.limbo.items():
            slot = t.e_message[entry]
            key = t.m_qpool[slot], t.e_queue[entry]
            place = self.model.items[key[0]].places[key[1]]
            held = client.held.get(key)
            if held is None or lease_tag(tag, token) != held.lease & 0xFFFFFFFF:
                continue
            verdict = verdicts.get(key)
            if verdict is not None and verdict.lease == held.lease:
                place.fate = verdict
            elif held.lease & 0xFFFFFFFF == t.m_lsn[slot] & 0xFFFFFFFF:
                place.fate = held.lease in in_work

    def _return(self, doubtful: Client | None = None, unseen: Given | None = None) -> bool:
        """The clients register again with what they hold; `unseen`: what the manager was handing
        out. Whether the last request of the one in doubt was carried out."""
        answered = False
        for client in self.clients:
            in_doubt = client.sequence if client is doubtful else 0
            found = self.instance.register(client, in_doubt)
            answered |= found is not None and client is doubtful
            self._adopted(client)
            for item, place in (unseen or {}).get(client.number, ()):
                if item.persistent and place.state is ACTIVE:
                    self.model.unseen(item, place)
            self._end_group()
        self.verify()
        return answered

    def _in_its_hands(self, found: Recovered) -> Given:
        """What the manager that died in this group had journaled as handed out."""
        if all(known.given_last <= self._last_lsn for known in found.clients.values()):
            return {}
        self.model.tick()
        return self.model.dispatch()

    def _adopted(self, client: Client) -> None:
        for (qpool, queue), held in client.held.items():
            item = self.model.items.get(qpool)
            place = item.places.get(queue) if item else None
            if (place and place.state is ACTIVE and place.client is None
                    and (place.lease ^ held.lease) & 0xFFFFFFFF == 0):
                place.client = client.number
                lease = self.model.rules[queue].lease_ns
                place.lease_due = self.model.mono + lease if lease else 0

    def crash_in_request(self, client: Client, ask: Callable[[], None],
                         apply: Callable[[int], None], cut: int, keep: Callable[[int], int],
                         check: Callable[[], Refusal] = lambda: None) -> None:
        """The manager dies in the middle of a request, and the client asks again under the old
        number. `ask` sends it, `apply` carries it out on the model (given its first QPoolId);
        `check` says what may then refuse it: what was not persistent is gone."""
        self.model.wall, self.model.mono = self._clock
        self._last_lsn = self.instance.core.block.first_lsn - 1
        self.disk.cut = cut
        try:
            self.instance.group(ask)
        except Cut:
            self.disk.die(keep)
            self._finish_doubtful(client, ask, apply, check)
            return
        self.disk.cut = None
        reply = self.instance.reply(client)
        assert isinstance(reply, tuple), reply
        apply(reply[1])
        self.finish()

    def crash_in_put(self, client: Client, drafts: Sequence[Draft], cut: int,
                     keep: Callable[[int], int]) -> None:
        """One message or a batch, if it would be taken."""
        many = len(drafts) > 1
        refusal = self.model.check_many(drafts) if many else self.model.check(drafts[0])
        if refusal is not None:
            return

        def ask() -> None:
            if many:
                self._put_many(client, drafts)
            else:
                self._put(client, encoded(drafts[0]))

        def apply(qpool: int) -> None:
            self._new_id(qpool, len(drafts))
            for i, one in enumerate(drafts):
                self.model.put(one, qpool + i)

        self.crash_in_request(client, ask, apply, cut, keep)

    def crash_in_ask(self, client: Client, verdicts: Sequence[Verdict], one: Draft, cut: int,
                     keep: Callable[[int], int]) -> None:
        """All of it is there, or nothing; the wait is not."""
        if self.model.check(one) is None:
            self.crash_in_request(
                client, lambda: self._ask_for(client, verdicts, one, 0),
                lambda qpool: self._asked(client, verdicts, one, qpool), cut, keep,
                lambda: self.model.check(one))

    def crash_in_settle(self, client: Client, verdicts: Sequence[Verdict], cut: int,
                        keep: Callable[[int], int]) -> None:
        rows = self._settlements(client, verdicts)

        def ask() -> None:
            self.instance.request(client, Operation.SETTLE, area=rows, count=len(verdicts))

        def apply(_: int) -> None:
            self.model.settle(client.number, verdicts)
            for v in verdicts:
                self._let_go(client, v)

        self.crash_in_request(client, ask, apply, cut, keep)

    def crash_in_move(self, client: Client, verdict: Verdict, parts: Sequence[Part],
                      new: Sequence[Draft], cut: int, keep: Callable[[int], int]) -> None:
        """A message moves, and others are made: all of it, or nothing."""
        if self.model.check_move(client.number, verdict, parts, new) is not None:
            return
        entry = self._entry(client, verdict)
        self.crash_in_request(
            client, lambda: self._move(client, entry, verdict, parts, new),
            lambda qpool: self._moved(client, verdict, parts, new, qpool), cut, keep,
            lambda: self.model.check_move(client.number, verdict, parts, new))

    def crash_in_many(self, client: Client, moves: Sequence[tuple[Verdict, Sequence[Draft]]],
                      cut: int, keep: Callable[[int], int]) -> None:
        """A batch moves: all of it, or nothing."""
        if self.check_many(client, moves) is None:
            self.crash_in_request(
                client, lambda: self._ask_many(client, moves),
                lambda qpool: self._moved_many(client, moves, qpool), cut, keep,
                lambda: self.check_many(client, moves))

    def crash_in_next(self, client: Client, want: int, cut: int, keep: Callable[[int], int]
                      ) -> None:
        """What was handed out and never reached its reader counts, if that was journaled: it is
        free again and a suspect, or on POISON."""

        def ask() -> None:
            self.instance.request(client, Operation.NEXT, want=want, argument=0)

        self.model.wall, self.model.mono = self._clock
        wish = Wish(client.number, client.queue, want, self.instance.mono, client.auxiliary)
        self._last_lsn = self.instance.core.block.first_lsn - 1
        self.disk.cut = cut
        try:
            self.instance.group(ask)
        except Cut:
            self.disk.die(keep)
            found = self.instance.start()
            self.model.wait(wish)
            given = self._in_its_hands(found)
            self._started(clean=False)
            self._return(client, given)
            return
        self.disk.cut = None
        self.model.wait(wish)
        self.finish()

    def _finish_doubtful(self, client: Client, ask: Callable[[], None],
                         apply: Callable[[int], None], check: Callable[[], Refusal]) -> None:
        found = self.instance.start()
        assert not found.clean
        known = found.clients.get(int.from_bytes(client.token[:8], "little"))
        carried_out = known is not None and known.sequence == client.sequence
        if carried_out and known is not None:
            apply(known.qpool)
            self.model.expire()  # in the same block
        given = self._in_its_hands(found)
        self._started(clean=False)
        assert self._return(client, given) == carried_out
        if carried_out:
            return
        client.sequence -= 1
        refusal = check()
        self.group(ask)
        reply = self.outcome(client, refusal)
        if reply is not None:
            apply(reply[1])
        self.finish()
