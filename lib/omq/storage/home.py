"""Where a spool lives, and that it lives once: two live copies of one spool would give the same
message ids for different messages.

    home.json := {"machine": ..., "path": ..., "device": ..., "inode": ...}

Next to instance.json, written by the queue manager. A copy (cp -a, a restored snapshot) brings the
home of its original along, so its first start sees that it is elsewhere. Is the original still
where it was, with the same uuid, it is a copy; else the spool was moved or restored.

`Alone` holds a machine-wide name, an abstract unix socket of the uuid, for as long as the manager
lives: no file that a kill could leave. Anybody may bind such a name, so only a holder of our own
user, or root, is believed. It is a name of the network namespace: of containers that share none,
home.json alone knows.

In the middle of a crash: home.json is a note; the old one, or none, makes a start say once more
that the spool was moved.

Errors: SpoolTwin; OSError and DiskError of home.json nowhere: it is a side file.
"""

from __future__ import annotations

import errno
import json
import os
import socket
from array import array
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from omq.base import side_files
from omq.base.access import user_name
from omq.base.errors import OmqError, SpoolTwin
from omq.base.paths import SpoolPaths
from omq.storage.spool import identity_command, open_spool

NAME: Final = "home.json"
MACHINE: Path = Path("/etc/machine-id")
_BYTES_MAX: Final = 8192


@dataclass(frozen=True, slots=True)
class Home:
    """The directory of a spool."""

    machine: str
    path: str
    device: int
    inode: int

    @classmethod
    def of(cls, root: Path) -> Home:
        """Of a spool that is there."""
        found = os.stat(root)
        return cls(machine(), str(root.resolve()), found.st_dev, found.st_ino)

    def is_same(self, noted: Home) -> bool:
        """Is this the directory of the note? Device numbers change with a reboot; by another path
        it is the same while the noted one leads here, too (a link, a bind mount)."""
        if self.machine != noted.machine or self.inode != noted.inode:
            return False
        if self.path == noted.path:
            return True
        try:
            there = os.stat(noted.path)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == (self.device, self.inode)


def machine() -> str:
    """What tells one host from another; its name where it has no id."""
    data = side_files.read(MACHINE, 64)
    return (data or b"").decode("ascii", "replace").strip() or socket.gethostname()


def load(paths: SpoolPaths) -> Home | None:
    """As it is noted; None: not yet, or it is not such a note."""
    try:
        found = json.loads(side_files.read(paths.root / NAME, _BYTES_MAX) or b"null")
        return Home(str(found["machine"]), str(found["path"]), int(found["device"]),
                    int(found["inode"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def settle(paths: SpoolPaths) -> None:
    """From now on it is at home here."""
    text = json.dumps(asdict(Home.of(paths.root)), sort_keys=True) + "\n"
    side_files.replace(paths.root / NAME, text.encode("ascii"))


def original(noted: Home, here: Home, uuid: bytes) -> bool:
    """Is the spool that this one was copied from still there? Only on the same machine that can be
    told."""
    if noted.machine != here.machine or noted.path == here.path:
        return False
    try:
        there = Home.of(Path(noted.path))
        return not here.is_same(there) and open_spool(Path(noted.path)).uuid == uuid
    except (OSError, OmqError):
        return False


class Alone:
    """This process is the only one on the machine that serves this uuid; see the module. `other`:
    who has the name and is not believed, for an event; empty: nobody."""

    def __init__(self, paths: SpoolPaths, uuid: bytes) -> None:
        self.other = ""
        self._socket: socket.socket | None = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        name = f"\0omq.spool.{uuid.hex()}"
        try:
            self._socket.bind(name)
            self._socket.listen(1)
        except OSError as error:
            self.close()
            if error.errno == errno.EADDRINUSE:
                self._judge(paths, *_holder(name))

    def _judge(self, paths: SpoolPaths, pid: int, uid: int) -> None:
        if not pid:
            return  # gone by now, or out of reach
        if uid in (0, os.geteuid()):
            raise SpoolTwin(path=paths.root, pid=pid, command=identity_command(paths.root))
        self.other = f"pid {pid} of {user_name(uid)}"

    def close(self) -> None:
        """Let go of the name."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _holder(name: str) -> tuple[int, int]:
    """Process and user that have the name; 0, 0: nobody can be asked."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(0)
        try:
            asking.connect(name)
            pid, uid, _ = array("i", asking.getsockopt(
                socket.SOL_SOCKET, socket.SO_PEERCRED, 3 * array("i").itemsize))
        except OSError:
            return 0, 0
        return pid, uid
