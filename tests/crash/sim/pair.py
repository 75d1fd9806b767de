"""A primary and its standby, each on a disk of its own, and the stream between them.

The primary is a Life. Behind each commit, or before each sync of its journal (`ahead`), what it has
written is sent: as bytes of a stream, which may be held back, cut anywhere and begun anew. The
standby takes it with the real mirror and replica. Its log says what it acknowledged, so at every
cut it is known what must be there.
"""

from __future__ import annotations

import copy
import traceback
from collections import deque
from dataclasses import dataclass, field
from random import Random

from omq.base.errors import StreamBroken
from omq.base.settings import Settings
from omq.core.standby.promotion import promote
from omq.core.standby.replica import Replica
from omq.format.standby import Piece, PieceKind, Synced
from omq.services.standby.receiving import Receiving
from omq.services.standby.sending import Sending
from omq.services.standby.stream import Outgoing, PieceReader
from omq.storage import durable, instance_file, spool, standby_holds
from omq.storage.instance_file import Instance, Role
from omq.storage.journal_reader import read_entry, scan_journal
from omq.storage.mirror_start import adopt
from tests.crash.sim.disk import Cut, Mark, SimDisk
from tests.crash.sim.explore import History, Outcome, index_errors, verdict
from tests.crash.sim.life import PATHS, SETTINGS, START_NS, C, Life, make_spool, recover_into
from tests.crash.sim.model import Known
from tests.crash.sim.platter import Image, image_of

ALL = 1 << 62
BYTES_MAX = 1 << 16


@dataclass(frozen=True, slots=True)
class Acked:
    """In the standby's log: it has said that it has this on its disk."""

    lsn: int


def make_base(settings: Settings = SETTINGS) -> tuple[Image, Image, dict[int, Known]]:
    """A primary's disk behind an orderly stop, that of a standby made from it, and what is in
    both."""
    disk = SimDisk(record=False)
    make_spool(disk)
    life = Life(disk, settings)
    life.put(C, size=100)
    life.commit()
    life.stop()
    uuid = life.uuid
    instance_file.write(PATHS, Instance(uuid, 0, Role.PRIMARY, "a"))
    disk.kill()
    begin = image_of(disk)
    standby = begin.mount(record=False)
    durable.use(standby)
    adopt(PATHS, uuid, end_of_journal(uuid))
    instance_file.write(PATHS, Instance(uuid, 0, Role.STANDBY, "b", "a"))
    standby.kill()
    return begin, image_of(standby), dict(life.model)


def end_of_journal(uuid: bytes) -> Synced:
    """The position behind everything that is there."""
    scan = scan_journal(PATHS, uuid)
    (last,) = deque(scan, maxlen=1)
    header = read_entry(PATHS, scan.last_number, uuid).header
    assert header is not None and last.number == header.number
    return Synced(uuid, 1, header.number, header.term, header.epoch, scan.last_offset,
                  scan.last_lsn, scan.last_lsn, int.from_bytes(last.data[4:8], "little"))


class Standby:
    """The receiving side on its disk."""

    def __init__(self, disk: SimDisk, settings: Settings = SETTINGS) -> None:
        self.disk, self.settings = disk, settings
        durable.use(disk)
        info = spool.open_spool(PATHS.root, writer=True, any_role=True)
        assert info.instance.role is Role.STANDBY
        self.lock = spool.lock(PATHS.manager_lock, "standby")
        self.replica = Replica(PATHS, info.uuid, settings)
        self.replica.start()
        self.session = Receiving(PATHS, info.instance, self.replica)
        self.acked = self.session.mirror.mark.lsn

    def take(self, piece: Piece) -> Piece | None:
        """One piece; nothing of it counts yet."""
        if piece.kind is PieceKind.BACK:
            self.disk.mark(Acked(-1))  # what was promised is void: the primary has not kept it
        answer = self.session.take(piece)
        if piece.kind is PieceKind.BACK:
            self.acked = self.session.mirror.mark.lsn
        return answer

    def turn(self, *, checkpoint: bool) -> Piece:
        """What came together counts now; and the pool."""
        said = self.session.settle()
        self.acked = said.durable
        self.disk.mark(Acked(self.acked))
        while self.session.apply():
            pass
        if checkpoint:
            self.session.checkpoint(START_NS)
        self.replica.retire()
        assert not self.replica.findings, self.replica.findings
        return said


@dataclass(slots=True)
class Pair:
    """See the module. `chance`: which pieces come together, where the stream is cut."""

    life: Life
    standby: Standby
    chance: Random
    ahead: bool = False
    breaks: float = 0.0  # of the turns: the connection is lost, in the middle of a piece
    delay: float = 0.0  # of the turns: nothing arrives
    pinned: bool = False  # the primary keeps all files: a standby of an earlier moment may ask
    calls_left: int = 0  # the primary's power fails at this call of its disk; 0: never
    _sending: Sending | None = None
    _out: Outgoing = field(default_factory=Outgoing)
    _reader: PieceReader = field(default_factory=PieceReader)
    _stream: bytearray = field(default_factory=bytearray)
    _answers: list[Piece] = field(default_factory=list)
    _busy: bool = False

    def __post_init__(self) -> None:
        durable.use(self.life.disk)
        if self.pinned:
            standby_holds.note(PATHS, "pin", 1)
        told = self.life.acknowledge

        def acknowledge() -> None:
            told()
            if not self._busy:
                self.pump()

        self.life.acknowledge = acknowledge  # type: ignore[method-assign]
        self.connect()
        durable.use(self.life.disk)
        self.life.disk.hook = self._at_call

    def _at_call(self, call: str, path: str, count: int) -> int | None:
        if self.ahead and call == "fdatasync" and "/journal/0" in path and not self._busy:
            self.pump(self.life.writer.last_lsn)
        if self.calls_left and not self._busy and call not in ("open", "pread"):
            self.calls_left -= 1
            if not self.calls_left:
                raise Cut
        return None

    def connect(self) -> None:
        """A new connection: they find out where their histories agree."""
        self._out, self._reader, self._stream = Outgoing(), PieceReader(), bytearray()
        self._answers.clear()
        durable.use(self.life.disk)
        if self._sending is not None:
            self._sending.close()
        self._sending = Sending(PATHS, Instance(self.life.uuid, 0, Role.PRIMARY, "a"))
        said: Piece | None = self.standby.session.hello()
        while said is not None:
            durable.use(self.life.disk)
            (answer,) = self._sending.take(said, self.life.writer.durable_lsn)
            durable.use(self.standby.disk)
            said = self.standby.take(answer)
        durable.use(self.life.disk)

    def pump(self, up_to: int = 0, *, all_of_it: bool = False) -> None:
        """Send what is there up to an LSN (0: what is durable), and let some of it arrive."""
        assert self._sending is not None
        self._busy = True
        try:
            durable.use(self.life.disk)
            for said in self._answers:
                assert self._sending.take(said, 0) == []
            self._answers.clear()
            for piece in self._sending.turn(self.life.writer.durable_lsn, BYTES_MAX, up_to):
                for part in self._out.encode(piece):
                    self._stream += part
            if all_of_it or self.chance.random() >= self.delay:
                self._arrive(all_of_it=all_of_it)
            if not all_of_it and self.chance.random() < self.breaks:
                self.connect()
        finally:
            durable.use(self.life.disk)
            self._busy = False

    def _arrive(self, *, all_of_it: bool) -> None:
        durable.use(self.standby.disk)
        count = len(self._stream) if all_of_it else self.chance.randint(0, len(self._stream))
        data = bytes(self._stream[:count])
        del self._stream[:count]
        for piece in self._reader.feed(data):
            assert self.standby.take(piece) is None
            if self.chance.random() < 0.3:
                self._answers.append(self.standby.turn(checkpoint=self.chance.random() < 0.3))
        self._answers.append(self.standby.turn(checkpoint=self.chance.random() < 0.2))

    def settle(self) -> None:
        """Everything has arrived."""
        for _ in range(100):
            self.pump(all_of_it=True)
            if self.standby.acked >= self.life.writer.durable_lsn:
                return
        raise AssertionError("the stream stands still")


def boundaries(disk: SimDisk, model: dict[int, Known]) -> list[History]:
    """From `model` on: what clients of the primary knew at each of its acknowledgements, with what
    was asked for until the next one."""
    assert disk.log is not None
    now = History(acked=dict(model), next_id=1 + max(model, default=0))
    out = [copy.deepcopy(now)]
    for event in disk.log:
        if not isinstance(event, Mark):
            continue
        before = now.lsn
        now.feed(event.what)
        if type(event.what).__name__ == "Ack" and now.lsn != before:
            out.append(copy.deepcopy(now))
        else:
            out[-1].flight = copy.deepcopy(now.flight)
            out[-1].asked = list(now.asked)
            out[-1].next_id, out[-1].queues = now.next_id, list(now.queues)
    return out


def promoted(image: Image, settings: Settings = SETTINGS, disk: SimDisk | None = None) -> Outcome:
    """What the standby's disk is as a primary. `disk`: the image, mounted already."""
    disk = disk or image.mount(record=False)
    try:
        durable.use(disk)
        info = spool.open_spool(PATHS.root, writer=True, any_role=True)
        if info.instance.role is not Role.PRIMARY:
            promote(PATHS, info.instance, settings, START_NS)
        disk.kill()
        found, core, _ = recover_into(disk, settings, START_NS)
        return Outcome(found, "; ".join(index_errors(core)))
    except Exception:
        return Outcome(None, "the promotion fails: " + traceback.format_exc().strip()[-900:])


def judged(outcome: Outcome, known: list[History], acked: int, written: int) -> list[str]:
    """Is it the primary's state at one of its commits, not before what the standby acknowledged?
    What is wrong else."""
    at = max((i for i, each in enumerate(known) if each.lsn <= acked), default=0)
    first: list[str] = []
    for each in known[at:]:
        if each.lsn > written:
            break
        wrong, _ = verdict(outcome, copy.deepcopy(each))
        if not wrong:
            return []
        first = first or wrong
    return first or ["no state of the primary is meant"]


__all__ = ["ALL", "Acked", "Cut", "Pair", "Standby", "StreamBroken", "boundaries", "judged",
           "make_base", "promoted"]
