"""Containers used again: the file of a body that has ended holds the next body of about its size,
written over the blocks that it has. What makes a new file slow are its blocks, which the file
system has to find and to journal (ADR 0227).

`Recycler` is idel.server's. In place of removing a container it writes a label over its first
bytes, syncs it, renames the file in its directory, syncs that, and offers it: by an empty file in
`spares/` whose name says all of it. `Taker` is for who writes bodies: who removes that file owns
the spare, and there is one who can. Nobody waits, and no lock outlives its holder.

    spares/SIZE.TIME.NONCE.DIRECTORY.ITEM    bytes, seconds since 1970, 16 hexadecimal digits; the
                                             container is data/DIRECTORY/ITEM
    label: "OMQSPARE", its reference, NONCE  at the beginning of the container

Invariants:
1. No name comes back: a spare has a name that nothing had (Disk.rename_new), and that name is on
   the disk, the old one gone from it, before it is offered. So what is written into it is durable
   with its file alone, and who looks for the body that has ended finds no file, as if it were
   removed.
2. The label decides, not the offer. A body is written over the label and synced before its message
   is put: a container that a message names has no label, whatever offers a power cut brings back.
   NONCE is not known to who put the body before. What has a spare's name and was never taken has
   its label, whatever a kill or a power cut leaves: the label is on the disk before the name.
3. Nobody else has it open or mapped: idel.server has a lease (Disk.lease) from before the label
   until the old name is gone, and asks again before the offer, for who had found the old name; who
   opens later than that finds that the name is gone (containers.open_item). One that was given out
   of omq's hands (containers.give_out) is never used again: pages of it may be in somebody's pipe
   when its last descriptor is closed.
4. It belongs to this user, is a regular file with one name, and its mode is that of a file of the
   spool; else it is removed, which is what happened to all before.
5. At most OFFERS_MAX files of `recycled_bytes_max` bytes rest, none for longer than AGE_S_MAX; none
   while the disk is short or nothing is done, none behind an orderly stop or the next start. None
   that is older is taken: omscan removes what is an hour old and no message names.
6. What has a label, is not offered, and nobody has open is a dead process's: removed under a lease,
   in which the label is looked at again. A taker that lives has it open, or finds it gone and takes
   another. Its item begins with PREFIX, so that others need not be opened to find it.

In the middle of a crash: a container under its old name, of a message that waits on IDEL to be
removed, with its body or the label; under its new one with the label, which idel.server takes back
when its own offer was taken in vain, and at its start (look_behind); half written: no message names
it, and omscan calls it an orphan, like every body whose writer died.

Errors: those of containers.remove. What keeps a container from being used again is none.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import secrets
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from omq.base import clock
from omq.base.errors import BadItemRef, DiskError, OmqError
from omq.base.paths import SpoolPaths
from omq.base.settings import Settings
from omq.storage import containers, disk_usage, durable
from omq.storage.disk import DIRECTORY_MODE, FILE_MODE
from omq.storage.files import File

OFFERS_MAX: Final = 64
"""So that a look at them takes microseconds."""
AGE_S_MAX: Final = 60
NEAR: Final = 2
"""A body takes a spare of half its size to twice its size: what lacks is added, what is too much is
given back, either of which costs the file system less than a new file."""
_OFFER: Final = re.compile(
    r"([0-9]{1,18})\.([0-9]{1,12})\.([0-9a-f]{16})\.([0-9a-z]{7})\.([0-9a-z]{7})", re.ASCII)
_MAGIC: Final = b"OMQSPARE"
_NONCE_BYTES: Final = 8
_NONCE: Final = re.compile(rb"[0-9a-f]{16}")
PREFIX: Final = "zz"
"""Of the items of spares: who looks for those that were left opens no others. It proves nothing."""
_MADE_MAX: Final = 2 * OFFERS_MAX
_ALL: Final = 36**7
LABEL_BYTES: Final = len(_MAGIC) + containers.REF_BYTES + 2 * _NONCE_BYTES


@dataclass(frozen=True, slots=True)
class Offer:
    """A spare, as its offer says it."""

    name: str  # in spares/
    ref: str
    size: int
    time_s: int
    label: bytes

    def fresh(self, now_s: int) -> bool:
        """Not too old, nor of a clock that was ahead."""
        return 0 <= now_s - self.time_s <= AGE_S_MAX


def offers(paths: SpoolPaths, size: int = 0) -> list[Offer]:
    """All that are offered, or those that are near `size` bytes; what has not the form of an offer
    is nobody's business here."""
    try:
        if not _is_there(paths):
            return []
        return [each for name in durable.list_directory(paths.spares)
                if (each := _parsed(name, size)) is not None]
    except DiskError:
        return []


def resting(paths: SpoolPaths) -> tuple[int, int]:
    """How many are offered, and their bytes."""
    sizes = [each.size for each in offers(paths)]
    return len(sizes), sum(sizes)


def _is_there(paths: SpoolPaths) -> bool:
    """The folder, which is none elsewhere."""
    found = durable.status(paths.spares)
    return found is not None and stat.S_ISDIR(found.st_mode)


def _parsed(name: str, size: int) -> Offer | None:
    match = _OFFER.fullmatch(name)
    if match is None or (size and not _near(int(match[1]), size)):
        return None
    ref = f"~/data/{match[4]}/{match[5]}"
    return Offer(name, ref, int(match[1]), int(match[2]), _label(ref, match[3]))


def _label(ref: str, nonce: str) -> bytes:
    return _MAGIC + ref.encode() + nonce.encode()


def _nonce() -> str:
    return secrets.token_hex(_NONCE_BYTES)


# who writes bodies


class Taker:
    """Takes spares, of one client or thread. It looks into the folder when it knows of none that
    fits: of those that it knows others may have taken some."""

    def __init__(self, paths: SpoolPaths) -> None:
        self._paths = paths
        self._known: list[Offer] = []

    def take(self, size: int) -> tuple[str, File, int] | None:
        """A spare for a body of `size` bytes: its reference, the file, open for writing, and how
        long it is. None: there is none."""
        if size < LABEL_BYTES:
            return None
        now_s = clock.wall_ns() // clock.NS_PER_S
        for looked in (False, True):
            if looked:
                self._known = offers(self._paths, size)
            while (offer := self._nearest(size, now_s)) is not None:
                with contextlib.suppress(DiskError):
                    if (_withdraw(self._paths, offer)
                            and (file := _labelled(self._paths, offer)) is not None):
                        return offer.ref, file, offer.size
        return None

    def _nearest(self, size: int, now_s: int) -> Offer | None:
        found = next((each for each in self._known if each.size == size), None) or min(
            (each for each in self._known if _near(each.size, size)),
            key=lambda each: abs(each.size - size), default=None)
        if found is None:
            return None
        self._known.remove(found)
        return found if found.fresh(now_s) else self._nearest(size, now_s)


def _near(size: int, wanted: int) -> bool:
    return size <= NEAR * wanted and wanted <= NEAR * size


def _withdraw(paths: SpoolPaths, offer: Offer) -> bool:
    """Whether it was this process that took the offer away."""
    return durable.unlink(paths.spares / offer.name, sync=False)


def _labelled(paths: SpoolPaths, offer: Offer) -> File | None:
    """The file of an offer that was withdrawn, if it is what the offer says."""
    file = _own(paths, offer.ref)
    if file is None:
        return None
    fits = False
    try:
        fits = file.size() == offer.size and file.read(LABEL_BYTES, 0) == offer.label
    finally:
        if not fits:
            file.close()
    return file if fits else None


def _own(paths: SpoolPaths, ref: str) -> File | None:
    """A container that may be used again, as far as one file says it (invariant 4)."""
    disk = durable.current()
    try:
        fd = disk.open_beneath(str(paths.root), containers.relative_path(ref),
                               os.O_RDWR | os.O_NONBLOCK)
    except OSError:
        return None
    file = File(fd, containers.path_of(paths, ref), "container")
    if _usable(disk.fstat(fd)):
        return file
    file.close()
    return None


def _usable(found: os.stat_result) -> bool:
    return (stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_uid == os.geteuid()
            and stat.S_IMODE(found.st_mode) == FILE_MODE)


# who looks


def is_spare(paths: SpoolPaths, ref: str) -> bool:
    """Has this container, which no message names, the label of a spare?"""
    try:
        file = containers.open_item(paths, ref)
        try:
            return _is_label(file, ref)
        finally:
            file.close()
    except (OmqError, FileNotFoundError):
        return False


def _is_label(file: File, ref: str) -> bool:
    found, label = file.read(LABEL_BYTES, 0), _label(ref, "")
    return found.startswith(label) and _NONCE.fullmatch(found[len(label):]) is not None


def offered(paths: SpoolPaths) -> set[str]:
    """The references of those that are spares now: no message names them."""
    return {each.ref for each in offers(paths) if _has_label(paths, each)}


def _has_label(paths: SpoolPaths, offer: Offer) -> bool:
    try:
        file = containers.open_item(paths, offer.ref)
        try:
            return file.read(LABEL_BYTES, 0) == offer.label
        finally:
            file.close()
    except (OmqError, FileNotFoundError):
        return False


def withdraw(paths: SpoolPaths, ref: str) -> None:
    """Nobody takes this one any more; for who removes it."""
    for each in offers(paths):
        if each.ref == ref:
            _withdraw(paths, each)


# who removes


class Recycler:
    """See the module. Of idel.server."""

    def __init__(self, paths: SpoolPaths, settings: Settings) -> None:
        self._paths, self._settings = paths, settings
        self._made: dict[str, None] = {}  # references that were offered, the oldest first
        self._folders: Iterator[str] = iter(())  # of data/, not looked through yet

    def open(self) -> None:
        """The folder is there, and nothing in it that a predecessor left. Where it cannot be made,
        as on a full disk, nothing rests: its name needs no sync."""
        if self._settings.recycled_bytes_max and durable.status(self._paths.spares) is None:
            with contextlib.suppress(OSError):
                durable.current().mkdir(str(self._paths.spares), DIRECTORY_MODE)
        self.give_back()
        with contextlib.suppress(DiskError):
            self._folders = iter(durable.list_directory(self._paths.data))

    def end(self, ref: str) -> bool:
        """Remove a container, or make it a spare; False: it is gone already. In both cases a power
        cut cannot bring it back under its name."""
        paths = self._paths
        self.look_behind(1)
        if not ref.startswith("~/data/") or (file := _own(paths, ref)) is None:
            return containers.remove(paths, ref)
        try:
            if not self._has_room(size := file.size()):
                return containers.remove(paths, ref)
            durable.step("container.before_unlink", file.path)
            if (offer := self._renamed(file, ref, size)) is None:
                return containers.remove(paths, ref)
            durable.sync_removal(file.path.parent)
            if not durable.current().alone(file.fd):  # it was being opened by its old name
                return containers.remove(paths, offer.ref)
        finally:
            file.close()
        if self._offer(offer):
            self._made[offer.ref] = None
        else:
            containers.remove(paths, offer.ref)
        return True

    def _has_room(self, size: int) -> bool:
        """For one more of `size` bytes; the oldest make room for it where they are of another size:
        nobody has wanted them since."""
        most = self._settings.recycled_bytes_max
        if not _is_there(self._paths):
            return False
        if disk_usage.free(self._paths, self._settings).short:
            self.give_back()
            return False
        if not LABEL_BYTES <= size <= most:
            return False
        if len(self._made) >= _MADE_MAX:
            self._take_back_made()
        now_s = clock.wall_ns() // clock.NS_PER_S
        resting = sorted(offers(self._paths), key=lambda each: each.time_s)
        held = sum(each.size for each in resting)
        for each in resting[:]:
            full = len(resting) >= OFFERS_MAX or held + size > most
            if each.fresh(now_s):
                if not full:
                    break
                if _near(each.size, size):
                    return False
            self._remove(each)
            resting.remove(each)
            held -= each.size
        return True

    def _renamed(self, file: File, ref: str, size: int) -> Offer | None:
        """It has a new name in its directory, which is one change of it, and first the label, on
        the disk: what has the name and is nobody's says so, whatever comes between. None: it has
        its old name. Nobody opens it meanwhile, and in the end nobody has it open."""
        disk = durable.current()
        try:
            disk.lease(file.fd)
            if not _usable(disk.fstat(file.fd)):  # it was given out before the lease
                return None
            for _ in range(3):
                offer = self._new_offer(ref, size)
                if disk.pwritev(file.fd, [offer.label], 0) != LABEL_BYTES:
                    return None
                disk.fdatasync(file.fd)
                path = containers.path_of(self._paths, offer.ref)
                try:
                    disk.rename_new(str(file.path), str(path))
                except FileExistsError:
                    continue
                file.path = path
                with contextlib.suppress(OSError):  # the kernel has ended it: somebody waited long
                    disk.release(file.fd)
                return offer
        except OSError:  # it is removed, as all were once
            pass
        return None

    def _new_offer(self, ref: str, size: int) -> Offer:
        nonce, now_s = _nonce(), clock.wall_ns() // clock.NS_PER_S
        folder = ref.split("/")[2]
        item = PREFIX + containers.new_item_ref().rpartition("/")[2][len(PREFIX):]
        ref = f"~/data/{folder}/{item}"
        return Offer(f"{size}.{now_s}.{nonce}.{folder}.{item}", ref, size, now_s,
                     _label(ref, nonce))

    def _offer(self, offer: Offer) -> bool:
        disk = durable.current()
        try:
            disk.close(disk.open(str(self._paths.spares / offer.name),
                                 os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE))
        except OSError:
            return False
        return True

    def _remove(self, offer: Offer) -> None:
        if _withdraw(self._paths, offer) and _has_label(self._paths, offer):
            containers.remove(self._paths, offer.ref, sync=False)

    def give_back(self) -> None:
        """Remove all spares. What cannot be removed stays, and omscan lists it."""
        for each in offers(self._paths):
            with contextlib.suppress(DiskError, BadItemRef):
                self._remove(each)
        self._take_back_made()

    def look_behind(self, folders: int = _ALL) -> None:
        """Take back what dead processes left in so many of the directories that were there at the
        start."""
        for folder in itertools.islice(self._folders, folders):
            with contextlib.suppress(DiskError):
                items = durable.list_directory(self._paths.data / folder)
                refs = [f"~/data/{folder}/{item}" for item in items if item.startswith(PREFIX)]
                self._take_back(refs)

    def _take_back_made(self) -> None:
        """Forget those that have been taken and written over, and those that are gone. Of those
        whose taker holds on to them some are left to the next start."""
        self._made = dict.fromkeys(self._take_back(list(self._made))[-_MADE_MAX // 2:])

    def _take_back(self, refs: list[str]) -> list[str]:
        """Remove the spares among these that are not offered and that nobody has: their takers
        died. The others that are spares yet."""
        offered_now = {each.ref for each in offers(self._paths)} if refs else set()
        return [ref for ref in refs if ref in offered_now or not self._taken_back(ref)]

    def _taken_back(self, ref: str) -> bool:
        """Whether it is not a spare, or not any more. A lease is asked for where there is a label
        alone: who opens the body of a message need not wait."""
        try:
            if not is_spare(self._paths, ref) or (file := _own(self._paths, ref)) is None:
                return True
        except DiskError:
            return False
        try:
            durable.current().lease(file.fd)  # a taker that comes is refused, and passes it over
            if _is_label(file, ref):
                containers.remove(self._paths, ref, sync=False)
        except (OSError, DiskError):
            return False
        finally:
            file.close()
        return True
