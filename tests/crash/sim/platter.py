"""What a power cut may leave: the log of a SimDisk is replayed up to the cut, and every choice of
the changes that no sync had made certain gives one image.

The model (CRASH-SAFETY.md has it for readers):
1. A write is cut into its 512-byte sectors; each is an atom of its own. That the file grows is
   another one: without it the new bytes are not there, without the sectors they are zeros.
2. A sync of a file makes its atoms certain, a sync of a directory its names. Nothing else does; in
   particular a synced new file has no name until its directory is synced.
3. Whatever is not certain survives in any subset, in no order between files, names and sectors,
   except that what is kept is applied in its order.
4. A rename in one directory is one atom. One between directories may leave both names, never none.
5. At most one sector of an uncertain write is garbage: the one under the head at the cut.
6. A failed sync loses what it was to save for good.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.crash.sim.disk import (
    ROOT,
    Dropped,
    Event,
    Link,
    Mark,
    Rename,
    Resize,
    SimDisk,
    Sync,
    SyncDirectory,
    Unlink,
    Write,
)

SECTOR: Final = 512
ZERO: Final = bytes(SECTOR)
GARBAGE: Final = bytes((i * 151 + 89) & 0xFF for i in range(SECTOR))
Names = dict[str, tuple[int, int]]  # name -> node, kind


@dataclass(slots=True)
class Data:
    """A pending write (`pieces`: offset and bytes of each sector that it changes) or resize."""

    node: int
    size: int
    pieces: list[tuple[int, bytes]] = field(default_factory=list)
    cuts: bool = False  # a truncate: the size is set, not only reached


@dataclass(slots=True)
class Name:
    """A pending change of one directory. `after`: the other half, which must not come later."""

    parent: int
    add: tuple[str, int, int] | None  # name, node, kind
    drop: tuple[str, int] | None  # name, node
    after: Name | None = None
    done: bool = False


Pending = Data | Name


@dataclass(frozen=True, slots=True)
class Choice:
    """One pending change that survives: all of it, or only some sectors; one may be garbage."""

    index: int
    sectors: tuple[int, ...] | None = None
    garbage: int = -1


@dataclass(slots=True)
class Image:
    """A state of the disk. `key` is the same for images with the same names and bytes."""

    files: dict[int, bytes]
    directories: dict[int, Names]
    key: int

    def mount(self, *, record: bool = False, faults: bool = False) -> SimDisk:
        """A machine that starts with this disk. Its files are copied when they are written."""
        disk = SimDisk(record=record, faults=faults)
        todo = [(ROOT, disk.root)]
        while todo:
            number, parent = todo.pop()
            for name, (child, kind) in self.directories.get(number, {}).items():
                made = disk.add(parent, name, child, kind, self.files.get(child, b""))
                if kind == stat.S_IFDIR:
                    todo.append((child, made))
        # A new file is empty: it does not get the number of one that lost its name.
        disk.nodes = max((disk.nodes, *self.files, *self.directories))
        return disk

    def content(self) -> dict[str, bytes]:
        """Bytes of every file by its path."""
        out: dict[str, bytes] = {}
        todo = [(ROOT, "")]
        while todo:
            number, path = todo.pop()
            for name, (child, kind) in self.directories.get(number, {}).items():
                if kind == stat.S_IFDIR:
                    todo.append((child, f"{path}/{name}"))
                else:
                    out[f"{path}/{name}"] = bytes(self.files.get(child, b""))
        return out


def image_of(disk: SimDisk) -> Image:
    """The disk as a process sees it, as if all of it were saved."""
    platter = Platter()
    todo = [disk.root]
    while todo:
        node = todo.pop()
        platter.directories[node.number] = {
            name: (child.number, child.kind) for name, child in node.entries.items()}
        for child in node.entries.values():
            if child.kind == stat.S_IFDIR:
                todo.append(child)
            else:
                platter.files[child.number] = bytes(child.data)
    return platter.image([])


class Platter:
    """The disk itself: what is certain, and what is pending, after the events fed so far."""

    def __init__(self, image: Image | None = None) -> None:
        self.files: dict[int, bytes] = dict(image.files) if image else {}
        self.directories: dict[int, Names] = {ROOT: {}}
        if image:
            self.directories = {n: dict(names) for n, names in image.directories.items()}
        self.pending: list[Pending] = []
        self._keys: dict[int, int] = {}

    def feed(self, event: Event) -> None:
        """The next event of the log."""
        if isinstance(event, Write):
            self._write(event)
        elif isinstance(event, Resize):
            self.pending.append(Data(event.node, event.size, cuts=True))
        elif isinstance(event, Link):
            if event.kind == stat.S_IFDIR:
                self.directories[event.node] = {}
            self.pending.append(Name(event.parent, (event.name, event.node, event.kind), None))
        elif isinstance(event, Unlink):
            self.pending.append(Name(event.parent, None, (event.name, event.node)))
        elif isinstance(event, Rename):
            self._rename(event)
        elif isinstance(event, Sync):
            self._force([p for p in self.pending if isinstance(p, Data) and p.node == event.node])
        elif isinstance(event, SyncDirectory):
            self._force_names(event.node)
        elif isinstance(event, Dropped):
            self.pending = [p for p in self.pending
                            if not isinstance(p, Data) or p.node != event.node]
        else:
            assert isinstance(event, Mark)

    def _write(self, event: Write) -> None:
        base = self.files.get(event.node, b"")
        busy = any(isinstance(p, Data) and p.node == event.node for p in self.pending)
        pieces, at, end = [], event.offset, event.offset + len(event.data)
        while at < end:
            stop = min((at // SECTOR + 1) * SECTOR, end)
            piece = event.data[at - event.offset : stop - event.offset]
            there = base[at:stop].ljust(stop - at, b"\0")
            if busy or piece != there:
                pieces.append((at, piece))
            at = stop
        if pieces or end > len(base) or busy:
            self.pending.append(Data(event.node, end, pieces))

    def _rename(self, event: Rename) -> None:
        add = (event.target_name, event.node, stat.S_IFREG)
        drop = (event.source_name, event.node)
        if event.source == event.target:
            self.pending.append(Name(event.source, add, drop))
            return
        arrival = Name(event.target, add, None)
        self.pending += (arrival, Name(event.source, None, drop, arrival))

    def _force(self, chosen: Sequence[Pending]) -> None:
        files = {p.node: bytearray(self.files.get(p.node, b""))
                 for p in chosen if isinstance(p, Data)}
        for change in chosen:
            if isinstance(change, Data):
                _apply(files[change.node], change, None, -1)
            else:
                change.done = True
                _rename_in(self.directories, change)
        for number, data in files.items():
            self.files[number] = bytes(data)
            self._keys.pop(number, None)
        gone = {id(change) for change in chosen}
        self.pending = [p for p in self.pending if id(p) not in gone]

    def _force_names(self, parent: int) -> None:
        names = [p for p in self.pending if isinstance(p, Name)]
        wanted = {id(p) for p in names if p.parent == parent}
        wanted |= {id(p.after) for p in names if p.parent == parent and p.after is not None}
        self._force([p for p in names if id(p) in wanted])

    # images

    def image(self, choices: Iterable[Choice]) -> Image:
        """What is on the disk when just these changes of `pending` survive."""
        files: dict[int, bytearray] = {}
        directories = self.directories
        copied = False
        touched: dict[int, set[int] | None] = {}
        kept: set[int] = set()
        for choice in choices:
            change = self.pending[choice.index]
            kept.add(id(change))
            if isinstance(change, Data):
                data = files.get(change.node)
                if data is None:
                    data = files[change.node] = bytearray(self.files.get(change.node, b""))
                seen = touched.setdefault(change.node, set())
                if change.cuts or seen is None:
                    touched[change.node] = None
                else:
                    seen.update(at // SECTOR for at, _ in change.pieces)
                _apply(data, change, choice.sectors, choice.garbage)
                continue
            if change.after is not None and not change.after.done and id(change.after) not in kept:
                continue
            if not copied:
                directories, copied = {n: dict(x) for n, x in directories.items()}, True
            _rename_in(directories, change)
        keys = {node: self._changed_key(node, bytes(data), touched[node])
                for node, data in files.items()}
        whole = {**self.files, **{node: bytes(data) for node, data in files.items()}}
        return Image(whole, directories, self._key(directories, keys))

    def _changed_key(self, node: int, data: bytes, sectors: set[int] | None) -> int:
        if sectors is None:
            return file_key(data)
        base = self.files.get(node, b"")
        key = self._file_key(node) ^ hash(len(base)) ^ hash(len(data))
        for sector in sectors:
            key ^= _sector_key(sector, base) ^ _sector_key(sector, data)
        return key

    def _file_key(self, node: int) -> int:
        key = self._keys.get(node)
        if key is None:
            key = self._keys[node] = file_key(self.files.get(node, b""))
        return key

    def _key(self, directories: dict[int, Names], keys: dict[int, int]) -> int:
        found: list[tuple[str, str, int]] = []
        todo = [(ROOT, "")]
        while todo:
            number, path = todo.pop()
            for name, (child, kind) in directories.get(number, {}).items():
                if kind == stat.S_IFDIR:
                    todo.append((child, f"{path}/{name}"))
                    found.append((path, name, 0))
                else:
                    key = keys.get(child)
                    found.append((path, name, self._file_key(child) if key is None else key))
        return hash(frozenset(found))


def _apply(data: bytearray, change: Data, sectors: tuple[int, ...] | None, garbage: int) -> None:
    if change.cuts:
        del data[change.size :]
    if len(data) < change.size:
        data += bytes(change.size - len(data))
    chosen = range(len(change.pieces)) if sectors is None else sectors
    for i in chosen:
        at, piece = change.pieces[i]
        data[at : at + len(piece)] = piece
    if garbage >= 0:
        at = change.pieces[garbage][0] // SECTOR * SECTOR
        end = min(at + SECTOR, len(data))
        data[at:end] = GARBAGE[: end - at]


def _rename_in(directories: dict[int, Names], change: Name) -> None:
    names = directories.setdefault(change.parent, {})
    if change.drop is not None and names.get(change.drop[0], (0, 0))[0] == change.drop[1]:
        del names[change.drop[0]]
    if change.add is not None:
        names[change.add[0]] = change.add[1:]


def _sector_key(sector: int, data: bytes) -> int:
    piece = data[sector * SECTOR : (sector + 1) * SECTOR]
    if piece == ZERO or not any(piece):  # the first is much the quicker of the two
        return 0
    return hash((sector, piece))


def file_key(data: bytes) -> int:
    """A hash of bytes in which sectors can be exchanged."""
    key = hash(len(data))
    for sector in range(-(-len(data) // SECTOR)):
        key ^= _sector_key(sector, data)
    return key
