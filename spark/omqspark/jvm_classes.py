"""The classes of Spark as the JVM has them in memory, kept in a file: its own "class data sharing"
(JEP 350). Half of what a refresh took was reading 280 jars and checking some 20,000 classes anew.

    DIR/spark-classes-KEY.jsa    some 150 MB; KEY: of the JVM, of pyspark and of its jars
    DIR: $CACHE_DIRECTORY (systemd's CacheDirectory=), else $XDG_CACHE_HOME/omq, ~/.cache/omq

`refresh` makes the file when there is none, as its JVM ends; every command that starts a JVM for
little work maps it.

Invariants:
1. What is mapped is run: a file counts only in a directory that nobody but its user (or root) can
   change, all the way up from it; else there is none, and none is made.
2. It is never wrong, only absent: the JVM compares its own version, and name, size and time of each
   jar, with what the file says, and goes without it where they differ.
3. In the middle of a crash: the JVM writes a hidden file next to it, which is renamed when the JVM
   has ended well. What a killed one left is removed by the next that makes one (under a lock, so it
   is nobody's); of files with another KEY the newest ARCHIVES_KEPT stay.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Final

PREFIX: Final = "spark-classes-"
ARCHIVES_KEPT: Final = 2  # two installations of one user do not drive out each other's
JVM_ENDS_S: Final = 300.0
"""It writes the file as it ends: seconds, or minutes on a busy host."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./+@-]+")
"""What can be in an option of spark-submit without quotes."""
_SILENT: Final = "-Xlog:disable -Xlog:all=error:stderr"
"""It warns of each class that it cannot keep; the errors of a file that does not fit are none."""


@dataclass
class ClassArchive:
    """See the module. `lock`: held by the process that makes it."""

    path: Path
    lock: IO[str] | None = None

    @property
    def there(self) -> bool:
        return self.path.exists()

    @property
    def hidden(self) -> Path:
        return self.path.with_name(f".{self.path.name}.new")

    def java(self, *, make: bool) -> str:
        """Options of a JVM that uses it; or, with `make` where there is none, writes it."""
        if self.there:
            return f"-XX:SharedArchiveFile={self.path} {_SILENT}"
        if not make or not self._begin():
            return ""
        return f"-XX:ArchiveClassesAtExit={self.hidden} {_SILENT}"

    def _begin(self) -> bool:
        lock = (self.path.parent / f"{PREFIX}lock").open("w", encoding="ascii")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # another one makes it
            lock.close()
            return False
        self.lock = lock
        for left in self.path.parent.glob(f".{PREFIX}*.new"):
            left.unlink()
        return True

    def end(self, gateway: Any) -> None:
        """The session has stopped: wait until its JVM has written the file, if it was to."""
        if self.lock is None:
            return
        gateway.shutdown()
        gateway.proc.stdin.close()  # by which it ends
        try:
            ended_well = gateway.proc.wait(JVM_ENDS_S) == 0
        except subprocess.TimeoutExpired:
            ended_well = False
        if ended_well and self.hidden.exists():
            self.hidden.rename(self.path)
            kept = sorted(self.path.parent.glob(f"{PREFIX}*.jsa"), key=lambda one: (
                one == self.path, one.stat().st_mtime_ns), reverse=True)
            for old in kept[ARCHIVES_KEPT:]:
                old.unlink()
        self.lock.close()
        self.lock = None


def class_archive(environment: Mapping[str, str] = os.environ) -> ClassArchive | None:
    """The file for this Java and this pyspark; None: there is no place for one."""
    where, key = _directory(environment), _key(environment)
    if where is None or not key:
        return None
    path = where / f"{PREFIX}{key}.jsa"
    return ClassArchive(path) if _PLAIN.fullmatch(str(path)) else None


def _directory(environment: Mapping[str, str]) -> Path | None:
    """Made if it is not there; None: another user could change what is in it."""
    if told := environment.get("CACHE_DIRECTORY"):
        where = Path(told.split(":")[0])
    else:
        home = environment.get("HOME", "")
        where = Path(environment.get("XDG_CACHE_HOME") or f"{home}/.cache") / "omq"
    if not where.is_absolute():
        return None
    try:
        where.mkdir(0o700, parents=True, exist_ok=True)
        where = where.resolve()
        return where if _ours(where) and all(map(_keeps_ours, where.parents)) else None
    except OSError:  # no home, a read-only one: each JVM then reads the jars
        return None


def _ours(path: Path) -> bool:
    found = path.stat()
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & 0o022


def _keeps_ours(path: Path) -> bool:
    """Nobody else can put another folder in the place of ours there: as in /tmp, too."""
    found = path.stat()
    return _ours(path) or bool(found.st_uid == 0 and found.st_mode & stat.S_ISVTX)


def _key(environment: Mapping[str, str]) -> str:
    """Another Java, pyspark or set of jars has another one."""
    home = environment.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java", path=environment.get("PATH"))
    package = find_spec("pyspark")
    if not java or package is None or package.origin is None:
        return ""
    parts = []
    for path in (Path(java), Path(package.origin).with_name("jars")):
        try:
            real = path.resolve(strict=True)
            parts.append(f"{real} {real.stat().st_mtime_ns}")
        except OSError:
            return ""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
