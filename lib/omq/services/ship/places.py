"""Places for objects: s3://, gs:// and az:// by obstore (the extra `ship`), file:// by ourselves.

    create  where nothing has that name; whether it was made     delete   gone, if it was there
    read    all of it, or its first bytes; None: it is not there   names  below a prefix, in order;
            a year has 31 million of them, so whoever can says behind and before which

Credentials and endpoints come from the environment, as each vendor's own tools take them
(AWS_ACCESS_KEY_ID, AWS_ENDPOINT, AWS_ALLOW_HTTP ...; obstore's documentation lists them).

Invariants: 1. `create` never changes what is there; 2. with file://, `create` returns when the
object and its name are on the disk (a store's own promise says so of the others).

In the middle of a crash: there is all of an object under its name, or nothing; file:// may leave a
temporary file, which no name is.

Errors: PlaceUnavailable, PlaceRefused (omq.services.ship.answers); BadArgument for a URL.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from omq.base import modes
from omq.base.errors import BadArgument, ExtraMissing, PlaceUnavailable
from omq.services.ship import answers

SCHEMES: Final = ("s3", "gs", "az", "file")
_TEMPORARY: Final = ".part"
_ALLOW_HTTP: Final = {"s3": "AWS_ALLOW_HTTP", "gs": "GOOGLE_ALLOW_HTTP", "az": "AZURE_ALLOW_HTTP"}
_REFUSALS: Final = ("PermissionDeniedError", "UnauthenticatedError")
_NAMES_AT_ONCE: Final = 1000  # as stores list them


class Place(Protocol):
    """See the module. `url`: as it was given, for people."""

    url: str

    def create(self, name: str, data: bytes) -> bool: ...
    def read(self, name: str, first: int = 0) -> bytes | None: ...
    def names(self, prefix: str, after: str = "", before: str = "") -> list[str]: ...
    def delete(self, name: str) -> None: ...


def place(url: str, timeout_s: float = 60.0) -> Place:
    """The place of a URL like s3://bucket/prefix or file:///mnt/backup/omq."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES or parts.query or parts.fragment or (
            parts.scheme == "file" and (parts.netloc or not parts.path.startswith("/"))):
        raise BadArgument(argument="URL", value=url, rule="like s3://bucket/prefix, gs://, az:// "
                          "or file:///directory")
    if parts.scheme == "file":
        return Directory(url, Path(unquote(parts.path)))
    return Bucket(url, timeout_s)


class Directory:
    """file://: a directory of another disk or a network file system. It is not a spool: an error of
    it is one of the place, which is asked again, and not of this instance's disk."""

    def __init__(self, url: str, root: Path) -> None:
        self.url, self.root = url, root

    def create(self, name: str, data: bytes) -> bool:
        """See Place."""
        target = self.root / name
        with self._told():
            self._make(target.parent)
            path = target.parent / f"{uuid.uuid4().hex}{_TEMPORARY}"
            try:
                _write(path, data)
                try:
                    os.link(path, target)
                except FileExistsError:
                    return False
            finally:
                with suppress(FileNotFoundError):
                    path.unlink()
            _sync(target.parent)
            return True

    def _make(self, folder: Path) -> None:
        if folder.is_dir():
            return
        if folder != self.root:
            self._make(folder.parent)
        folder.mkdir(modes.DIRECTORY, exist_ok=True)
        _sync(folder.parent)

    def read(self, name: str, first: int = 0) -> bytes | None:
        """See Place."""
        with self._told():
            try:
                with (self.root / name).open("rb") as file:
                    return file.read(first or -1)
            except FileNotFoundError:
                return None

    def names(self, prefix: str, after: str = "", before: str = "") -> list[str]:
        """See Place."""
        root = len(str(self.root)) + 1
        with self._told():
            found = [f"{folder}/{name}"[root:]
                     for folder, _, names in os.walk((self.root / prefix), onerror=_raise)
                     for name in names if not name.endswith(_TEMPORARY)]
        return sorted(each for each in found if each > after and (not before or each < before))

    def delete(self, name: str) -> None:
        """See Place."""
        with self._told(), suppress(FileNotFoundError):
            (self.root / name).unlink()

    @contextmanager
    def _told(self) -> Iterator[None]:
        with _told(self.url):
            if not self.root.is_dir():  # not mounted: what is put there would fill another disk
                raise FileNotFoundError(errno.ENOENT, "", str(self.root))
            yield


def _raise(error: OSError) -> None:
    if error.errno != errno.ENOENT:
        raise error


def _write(path: Path, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW,
                   modes.FILE)
    try:
        view = memoryview(data)
        while len(view):
            view = view[os.write(file, view) :]
        os.fsync(file)
    finally:
        os.close(file)


def _sync(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


class Bucket:
    """What obstore reaches."""

    def __init__(self, url: str, timeout_s: float) -> None:
        try:
            import obstore
            from obstore.store import from_url
        except ImportError as error:
            raise ExtraMissing(package="obstore", command=f"a place like {url}",
                               extra="omq-base[ship]") from error
        self.url = url
        opens: Any = from_url
        self._obstore: Any = obstore
        with _told(url):
            options = {"timeout": timedelta(seconds=timeout_s),
                       "allow_http": os.environ.get(
                           _ALLOW_HTTP[urlsplit(url).scheme], "").lower() == "true"}
            self._store: Any = opens(url, client_options=options, retry_config={"max_retries": 3})

    def create(self, name: str, data: bytes) -> bool:
        """See Place."""
        with _told(self.url):
            try:
                self._obstore.put(self._store, name, data, mode="create")
            except self._obstore.exceptions.AlreadyExistsError:
                return False
            return True

    def read(self, name: str, first: int = 0) -> bytes | None:
        """See Place."""
        with _told(self.url):
            try:
                if first:
                    return bytes(self._obstore.get_range(self._store, name, start=0, length=first))
                return bytes(self._obstore.get(self._store, name).bytes())
            except FileNotFoundError:
                return None

    def names(self, prefix: str, after: str = "", before: str = "") -> list[str]:
        """See Place. Stores list in the order of names: from `after` on, and a page of names in
        order that has come to `before` is the last that is wanted."""
        found: list[str] = []
        with _told(self.url):
            for some in self._obstore.list(self._store, prefix, offset=after or None,
                                           chunk_size=_NAMES_AT_ONCE):
                names = [each["path"] for each in some]
                found += [each for each in names if each > after and (
                    not before or each < before)]
                if before and names and names[-1] >= before and names == sorted(names):
                    break
        return sorted(found)

    def delete(self, name: str) -> None:
        """See Place."""
        with _told(self.url):
            try:
                self._obstore.delete(self._store, name)
            except FileNotFoundError:
                return


@contextmanager
def _told(url: str) -> Iterator[None]:
    """Whatever a store says is PlaceUnavailable, or PlaceRefused."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # obstore's: a bucket that is not there
            raise answers.told(url, str(error)) from error
        raise PlaceUnavailable(url=url, reason=os.strerror(error.errno)) from error
    except Exception as error:
        if not type(error).__module__.startswith("obstore"):
            raise
        raise answers.told(url, str(error), refused=type(error).__name__ in _REFUSALS) from error
