"""A file tree in memory with two layers: what programs see, and what a power cut must leave.

Writes, sizes and directory entries are volatile until the file, or the directory, is synced. `cut`
gives a tree that a power cut may leave: everything that was synced, and of the rest a part that a
`Fate` chooses. The model, weaker than any one file system:

1. a write falls into atoms of 512 bytes, each of which survives or not, in any order; an atom that
   was being written may be garbage instead; that a file became longer is an atom of its own, so
   that a file may end in zeros where its data is missing;
2. syncing a file makes its bytes durable, not its name; syncing a directory its entries, not the
   bytes; between files there is no order;
3. of the entry changes of one directory a prefix survives; a rename into another directory never
   loses the file: the old name goes only when the new one has come.

Not modelled: a device that lies about a sync, and bytes that change where nothing was written.
"""

from __future__ import annotations

import random
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

ATOM: Final = 512


@dataclass(slots=True, eq=False)
class Pending:
    """A write (`data`), or with None a new size (`offset`), that no sync has covered."""

    offset: int
    data: bytes | None


@dataclass(slots=True, eq=False)
class Change:
    """An entry that was set (`node`) or removed (None) and whose directory was not synced since.

    `needs`: the change in the other directory that must have survived first."""

    name: str
    node: Node | None
    needs: Change | None = None
    durable: bool = False


@dataclass(slots=True, eq=False)
class Node:
    """A file, a directory, or something else (a socket); `mode` as in stat."""

    mode: int
    uid: int = 0
    gid: int = 0
    mtime_ns: int = 0
    links: int = 1
    data: bytearray = field(default_factory=bytearray)
    kept: bytearray = field(default_factory=bytearray)  # the durable bytes
    pending: list[Pending] = field(default_factory=list)
    entries: dict[str, Node] = field(default_factory=dict)
    kept_entries: dict[str, Node] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)

    @property
    def is_dir(self) -> bool:
        return stat.S_ISDIR(self.mode)


class Fate:
    """What survives of what was not synced. The base class: nothing."""

    def entries(self, changes: list[Change]) -> int:
        """How many of the directory's changes survive, from the first on."""
        return 0

    def grows(self) -> bool:
        """Whether one change of a file's size survives."""
        return False

    def atom(self, data: bytes) -> bytes | None:
        """What lies there afterwards; None: what was there before."""
        return None


class Everything(Fate):
    """The kernel had written all of it: what SIGKILL of all processes leaves."""

    def entries(self, changes: list[Change]) -> int:
        return len(changes)

    def grows(self) -> bool:
        return True

    def atom(self, data: bytes) -> bytes | None:
        return data


class Chance(Fate):
    """A part by chance; how large a part is drawn for each cut."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._part = self._random.choice((0.1, 0.5, 0.9, 0.98))
        self._garbage = self._random.choice((0.0, 0.0, 0.02))

    def entries(self, changes: list[Change]) -> int:
        return self._random.randint(0, len(changes))

    def grows(self) -> bool:
        return self._random.random() < self._part

    def atom(self, data: bytes) -> bytes | None:
        if self._garbage and self._random.random() < self._garbage:
            return self._random.randbytes(len(data))
        return data if self._random.random() < self._part else None


def fate(name: str, seed: int) -> Fate:
    """`synced`, `all` or `chance`."""
    return {"synced": Fate, "all": Everything}[name]() if name != "chance" else Chance(seed)


def directory(mode: int = 0o750) -> Node:
    """A new empty directory."""
    return Node(stat.S_IFDIR | mode)


def write(node: Node, offset: int, data: bytes) -> None:
    """Bytes as programs see them from now on."""
    if len(node.data) < offset:
        node.data.extend(bytes(offset - len(node.data)))
    node.data[offset : offset + len(data)] = data
    node.pending.append(Pending(offset, data))


def resize(node: Node, size: int) -> None:
    """A new length; what is added is zeros."""
    _set_size(node.data, size)
    node.pending.append(Pending(size, None))


def sync(node: Node) -> None:
    """fsync: bytes of a file, entries of a directory."""
    if node.is_dir:
        for change in node.changes:
            change.durable = True
        node.changes.clear()
        node.kept_entries = dict(node.entries)
        return
    for pending in node.pending:
        _apply(node.kept, pending)
    node.pending.clear()


def forget(node: Node) -> None:
    """A sync failed: the kernel calls the pages clean, and the disk never gets them."""
    node.pending.clear()
    node.data = bytearray(node.kept)


def _apply(data: bytearray, pending: Pending) -> None:
    if pending.data is None:
        _set_size(data, pending.offset)
        return
    if len(data) < pending.offset:
        data.extend(bytes(pending.offset - len(data)))
    data[pending.offset : pending.offset + len(pending.data)] = pending.data


def _set_size(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))


def link(parent: Node, name: str, node: Node) -> Change:
    """A name for a node; it replaces what had the name."""
    change = Change(name, node)
    parent.entries[name] = node
    parent.changes.append(change)
    return change


def unlink(parent: Node, name: str, needs: Change | None = None) -> None:
    """The name goes."""
    del parent.entries[name]
    parent.changes.append(Change(name, None, needs))


def rename(old: Node, name: str, new: Node, target: str) -> None:
    """Within one directory both happen or neither; else see rule 3 of the module."""
    node = old.entries[name]
    came = link(new, target, node)
    unlink(old, name, came)


def cut(root: Node, chosen: Fate) -> Node:
    """The tree after a power cut; everything in it is durable."""
    survived: set[int] = set()
    plan: dict[int, int] = {}
    folders = list({id(n): n for n in _directories(root)}.values())
    for folder in folders:
        plan[id(folder)] = chosen.entries(folder.changes)
    for folder in folders:
        survived.update(id(change) for change in folder.changes[: plan[id(folder)]])
    return _cut_directory(root, plan, survived, chosen, {})


def _directories(root: Node) -> Iterator[Node]:
    """Every directory that is reachable in either layer."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen or not node.is_dir:
            continue
        seen.add(id(node))
        yield node
        waiting += node.entries.values()
        waiting += node.kept_entries.values()
        waiting += [change.node for change in node.changes if change.node is not None]


def _cut_directory(node: Node, plan: dict[int, int], survived: set[int], chosen: Fate,
                   made: dict[int, Node]) -> Node:
    entries = dict(node.kept_entries)
    changes = node.changes[: plan[id(node)]]
    # A rename inside one directory is one step of its journal: the new name never comes alone.
    rest = node.changes[len(changes) : len(changes) + 1]
    if rest and rest[0].needs is not None and rest[0].needs in changes:
        changes = [*changes, rest[0]]
    for change in changes:
        if change.node is not None:
            entries[change.name] = change.node
        elif change.needs is None or change.needs.durable or id(change.needs) in survived:
            entries.pop(change.name, None)
    fresh = Node(node.mode, node.uid, node.gid, node.mtime_ns)
    for name, child in entries.items():
        if id(child) not in made:
            made[id(child)] = (_cut_directory(child, plan, survived, chosen, made)
                               if child.is_dir else _cut_file(child, chosen))
        fresh.entries[name] = made[id(child)]
    fresh.kept_entries = dict(fresh.entries)
    return fresh


def _cut_file(node: Node, chosen: Fate) -> Node:
    data = bytearray(node.kept)
    for pending in node.pending:
        if pending.data is None:
            if chosen.grows():
                _set_size(data, pending.offset)
            continue
        end = pending.offset + len(pending.data)
        if end > len(data) and chosen.grows():
            data.extend(bytes(end - len(data)))
        _atoms(data, pending.offset, pending.data, chosen)
    return Node(node.mode, node.uid, node.gid, node.mtime_ns, data=data, kept=bytearray(data))


def _atoms(data: bytearray, offset: int, written: bytes, chosen: Fate) -> None:
    at = 0
    while at < len(written) and offset + at < len(data):
        step = ATOM - (offset + at) % ATOM
        piece = chosen.atom(written[at : at + step])
        if piece is not None:
            here = offset + at
            piece = piece[: len(data) - here]
            data[here : here + len(piece)] = piece
        at += step
