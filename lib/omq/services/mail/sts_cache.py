"""Policies of MTA-STS that were fetched, kept in a folder of the spool: unix.sts/HASH.json.

A policy counts for its `max_age` also while neither the DNS nor its server answers, and over
restarts: who cuts a host off from both must not get its mail in plain (RFC 8461 section 10.2).

A file for each domain, named by the SHA-256 of its name, KNOWN_MAX at most: beyond it the one that
was fetched first goes.

In the middle of a crash: each file is the old policy or the new one, whole, since it is written
under another name, synced and renamed; the new one is on the disk when `keep` returns. A file that
is not a policy counts as absent, and the policy is fetched again.

A clock that was set back: a policy fetched in the future is as old as none, and is fetched again
at the next occasion. One that was set forward ages all of them, and they are fetched again.

Errors: of writing SpoolFull, DiskError.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from omq.base import side_files
from omq.base.clock import NS_PER_S
from omq.services.mail.sts_policy import MODES, StsPolicy
from omq.storage import durable
from omq.storage.files import create_file

KNOWN_MAX: Final = 10_000
_FILE_BYTES_MAX: Final = 128 * 1024


@dataclass(frozen=True, slots=True)
class Kept:
    """A policy, and when it was fetched (wall clock)."""

    policy: StsPolicy
    fetched_ns: int

    def age_s(self, now_ns: int) -> float:
        """Since it was fetched; 0 of one that the clock has not come to yet."""
        return max(0.0, (now_ns - self.fetched_ns) / NS_PER_S)

    def counts(self, now_ns: int) -> bool:
        """Whether its time is not over."""
        return self.age_s(now_ns) < self.policy.max_age_s


class StsCache:
    """The folder, which is made with the first policy."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(self, domain: str) -> Kept | None:
        """What is kept of a domain; None: nothing, or nothing that can be read."""
        data = side_files.read(self._path(domain), _FILE_BYTES_MAX)
        return _decoded(data, domain) if data else None

    def keep(self, domain: str, kept: Kept) -> None:
        """It was fetched. SpoolFull, DiskError."""
        policy = kept.policy
        text = json.dumps({
            "domain": domain, "id": policy.identity, "mode": policy.mode, "mx": policy.mx,
            "max_age_s": policy.max_age_s, "fetched_ns": kept.fetched_ns}) + "\n"
        path = self._path(domain)
        new = path.with_name(f".{path.name}.{os.getpid()}")
        durable.make_directory(self._folder)
        file = create_file(new, replace=True)
        try:
            file.write([text.encode("ascii")], 0, new=True)
            file.sync_all(new=True)
            durable.rename(new, path, new=True)
        finally:
            file.close()
        self._bound()

    def _bound(self) -> None:
        names = [each for each in durable.list_directory(self._folder) if each.endswith(".json")]
        if len(names) <= KNOWN_MAX:
            return
        paths = [self._folder / each for each in names]
        times = {path: found.st_mtime_ns for path in paths
                 if (found := side_files.seen(path)) is not None}
        for path in sorted(times, key=times.__getitem__)[:len(names) - KNOWN_MAX]:
            durable.unlink(path, sync=False)

    def _path(self, domain: str) -> Path:
        return self._folder / f"{hashlib.sha256(domain.encode()).hexdigest()}.json"


def _decoded(data: bytes, domain: str) -> Kept | None:
    try:
        found = json.loads(data)
        policy = StsPolicy(str(found["id"]), str(found["mode"]),
                           tuple(str(each) for each in found["mx"]), int(found["max_age_s"]))
        kept = Kept(policy, int(found["fetched_ns"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return kept if found["domain"] == domain and policy.mode in MODES else None
