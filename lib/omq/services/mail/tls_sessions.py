"""logs/SERVICE.tls.jsonl: what became of TLS on each line to a peer, for reports and `omq peers`.

Lines of JSON, in ASCII:

    {"time_ns": wall, "domains": ["example.org"], "host": "mx.example.org", "port": 25,
     "address": "192.0.2.1", "policy": "tlsa", "lines": ["3 1 1 ab..."], "level": "dane",
     "result": "", "reason": "", "version": "TLSv1.3", "cipher": "...",
     "certificate": {"sha256": "...", "subject": "...", "issuer": "...", "until": "2026-..."}}

    {"missing": 3}     so many lines could not be written before the next one

`result` is empty, or what RFC 8460 section 4.3 calls the failure; `policy` is its kind of policy:
tlsa, sts, no-policy-found. A failure before any line (a policy that cannot be had) has no host.

Invariants: 1. a line is one write, appended by any of the gateway's processes; 2. a side file with
a bound (`unix_tls_sessions_bytes_max`, base.log_file): never synced, and one that cannot be written
stops nothing, and is counted in the next that can; 3. what a peer says of itself is cut and has
no line ends.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from omq.base import clock, side_files
from omq.base.log_file import LogFile, before
from omq.services.mail.mail_message import one_line

if TYPE_CHECKING:
    from omq.services.readers.service import ServiceContext

SUFFIX: Final = ".tls.jsonl"
_WORDS_MAX: Final = 300
_KEYS: Final = {"time_ns", "domains", "host", "port", "policy", "lines", "level", "result",
                "reason", "version", "cipher", "certificate"}


@dataclass(frozen=True, slots=True)
class TlsSession:
    """One line, or one attempt."""

    host: str = ""
    port: int = 0
    address: str = ""
    level: str = ""
    result: str = ""
    reason: str = ""
    version: str = ""
    cipher: str = ""
    certificate: dict[str, str] = field(default_factory=dict)


class TlsSessions:
    """One process's way to the file. `bytes_max` 0: there is none."""

    def __init__(self, path: Path, bytes_max: int) -> None:
        self._file = LogFile(path, bytes_max, lambda reason: None) if bytes_max else None
        self._missing = 0

    @classmethod
    def of(cls, context: ServiceContext) -> TlsSessions:
        """As omq.conf says."""
        return cls(context.paths.logs / f"{context.conf.name}{SUFFIX}",
                   context.settings.unix_tls_sessions_bytes_max)

    def note(self, session: TlsSession, domains: Sequence[str], policy: str, lines: Sequence[str]
             ) -> None:
        """It ended so."""
        if self._file is None:
            return
        row = asdict(session) | {
            "time_ns": clock.wall_ns(), "domains": list(domains), "policy": policy,
            "lines": list(lines), "reason": one_line(session.reason)[:_WORDS_MAX]}
        rows = [{"missing": self._missing}, row] if self._missing else [row]
        data = b"".join(json.dumps(each).encode("ascii") + b"\n" for each in rows)
        whole = False
        with suppress(OSError):  # a side file: the mail is what counts
            whole = self._file.ready() and self._file.write(data) == len(data)
        self._missing = 0 if whole else self._missing + 1

    def close(self) -> None:
        """The process ends."""
        if self._file is not None:
            self._file.close()


@dataclass(slots=True)
class Gaps:
    """What a reader of the record cannot know. `missing`: lines that could not be written, as far
    as a later one says so; `unread`: lines that are none, torn or written by others; `since_ns`:
    wall, of the first line of a record of which older ones may be gone, 0: nothing is gone."""

    missing: int = 0
    unread: int = 0
    since_ns: int = 0

    def sentence(self, since_ns: int = 0) -> str:
        """For people; empty: nothing that began at `since_ns` or later is missing."""
        said = []
        if self.missing or self.unread:
            said.append(f"{self.missing} lines could not be noted and {self.unread} cannot be read")
        if self.since_ns > since_ns:
            first = datetime.fromtimestamp(self.since_ns / clock.NS_PER_S, UTC)
            said.append(f"what was noted before {first:%Y-%m-%dT%H:%M:%SZ} is gone "
                        "(unix_tls_sessions_bytes_max)")
        return ", and ".join(said)


def read_sessions(logs: Path, service: str, gaps: Gaps | None = None) -> Iterator[dict[str, Any]]:
    """What was noted, the oldest first; what is missing is counted in `gaps`."""
    gaps = Gaps() if gaps is None else gaps
    path = logs / f"{service}{SUFFIX}"
    older = side_files.read(before(path))
    first = True
    for data in (older or b"", side_files.read(path) or b""):
        for line in data.splitlines():
            row = _row(line)
            if row is None:
                gaps.unread += 1
            elif "missing" in row:
                gaps.missing += row["missing"]
            else:
                if first and older is not None:
                    gaps.since_ns = max(gaps.since_ns, row["time_ns"])
                first = False
                yield row


def _row(line: bytes) -> dict[str, Any] | None:
    """None: it is none of ours."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict):
        return None
    if row.keys() == {"missing"}:
        return row if type(row["missing"]) is int and row["missing"] > 0 else None
    return row if row.keys() >= _KEYS and _is_sound(row) else None


def _is_sound(row: dict[str, Any]) -> bool:
    texts = ("host", "policy", "level", "result", "reason", "version", "cipher")
    return (isinstance(row["time_ns"], int) and isinstance(row["certificate"], dict)
            and all(isinstance(row[each], str) for each in texts)
            and all(isinstance(row[each], list)
                    and all(isinstance(one, str) for one in row[each])
                    for each in ("domains", "lines")))


def facts_of(certificate: bytes | None) -> dict[str, str]:
    """Of a certificate in DER; its digest alone where it, or the library that reads it, is not
    there."""
    if not certificate:
        return {}
    found = {"sha256": hashlib.sha256(certificate).hexdigest()}
    try:
        from cryptography import x509

        seen = x509.load_der_x509_certificate(certificate)
        found |= {"subject": one_line(seen.subject.rfc4514_string())[:_WORDS_MAX],
                  "issuer": one_line(seen.issuer.rfc4514_string())[:_WORDS_MAX],
                  "until": seen.not_valid_after_utc.isoformat()}
    except (ImportError, ValueError) as error:
        found["unread"] = type(error).__name__
    return found
