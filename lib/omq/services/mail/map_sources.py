"""Where a map of addresses is: a file, regular expressions, a command, SQLite; LDAP is next door.

A source has one question: what stands for this key (an address, or the name of a login)? The answer
is None (nothing does) or the values; anything else is MapFailed, and the mail waits.

    file:/path        lines `key value, value`; a key is user@domain, @domain (all that have no line
                      of their own) or a login; a line that begins with a space goes on with the
                      one before it; '#' begins a comment. Postfix's virtual(5).
    regexp:/path      lines `/expression/ value, value`; the first that matches counts; $1 or ${1}
                      in a value is what the first bracket matched. Case does not count. Postfix's
                      regexp_table(5), without flags and if.
    command:user /path words {address}      for each key; it writes the values
    sqlite:/path select goto from alias where address = :address

Rules:
1. A look-up is bounded: regular expressions are RE2's, whose time grows with the length of the key
   alone; a statement of SQLite is stopped after its time; a command is killed with its children.
2. A file is read again when it has changed. One that is wrong, empty, without an end of its last
   line or changed while it was read answers nothing: half a file is not the whole of it.
3. A value that is not an address makes the answer void, all of it.
4. Nothing of a key can be an option, a second value or a part of a statement.
"""

from __future__ import annotations

import re
import sqlite3
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from omq.base.amounts import duration
from omq.base.limits import KIB, MIB
from omq.base.names import escape
from omq.services.mail.mail_message import address_problem, split_address
from omq.services.mail.map_errors import MapFailed
from omq.services.mail.pipe_channel import answer_of, arguments
from omq.services.mail.routes import Pipe
from omq.services.mail.watched_file import Watched, joined_lines

EXPRESSIONS_MAX: Final = 1000
EXPRESSION_BYTES_MAX: Final = 1 * KIB
EXPRESSION_MEMORY_MAX: Final = 1 * MIB
VALUES_MAX: Final = 100
ANSWER_BYTES_MAX: Final = 64 * KIB
NO_ENTRY: Final = 67  # EX_NOUSER
ANY: Final = "*"
_STEPS: Final = 1000  # of SQLite between two looks at the clock
_READING: Final = frozenset((sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE))

Check = Callable[[str], str]
"""Why this is not a value; empty: it is one."""


def recipient_problem(value: str) -> str:
    """Why no mail can be sent to this."""
    return "a space" if " " in value else address_problem(value, smtputf8=True) or ""


def sender_problem(value: str) -> str:
    """Why nobody can send as this."""
    domain = value[1:] if value[:1] == "@" else ""
    if value == ANY or (domain and "@" not in domain and " " not in domain):
        return ""
    return recipient_problem(value) or ("" if "@" in value else "no @")


def checked(source: str, values: Sequence[str], check: Check) -> tuple[str, ...] | None:
    """The values, none twice; None without any. MapFailed."""
    found = tuple(dict.fromkeys(each.strip() for each in values if each.strip()))
    if len(found) > VALUES_MAX:
        raise MapFailed(source, f"more than {VALUES_MAX} values for one key")
    for each in found:
        if problem := check(each):
            raise MapFailed(source, f"{escape(each)!r} is not an address: {problem}")
    return found or None


@dataclass(slots=True)
class FileMap:
    """Keys and values, a line each."""

    name: str
    file: Watched
    check: Check
    whole: bool = True  # keys are addresses, not logins

    def look_up(self, key: str, timeout_s: float) -> tuple[str, ...] | None:
        del timeout_s
        table = self.file.content(self._parsed)
        found = table.get(key)
        return found if found is not None else table.get(f"@{split_address(key)[1]}")

    def _parsed(self, text: str) -> dict[str, tuple[str, ...]]:
        table: dict[str, tuple[str, ...]] = {}
        for number, line in joined_lines(text):
            key, _, rest = line.replace("\t", " ").partition(" ")
            where = f"{self.name}: {self.file.path}:{number}"
            values = checked(where, rest.split(","), self.check)
            if values is None:
                raise MapFailed(where, f"{escape(key)!r} has no value")
            if self.whole and "@" not in key:
                raise MapFailed(where, f"{escape(key)!r} is neither user@domain nor @domain")
            if key.lower() in table:
                raise MapFailed(where, f"{escape(key)!r} is there twice")
            table[key.lower()] = values
        return table


@dataclass(frozen=True, slots=True)
class _Rule:
    expression: Any
    values: tuple[str, ...]


@dataclass(slots=True)
class RegexpMap:
    """Regular expressions, in the order of the file; the extra omq-base[maps]."""

    name: str
    file: Watched
    check: Check

    def look_up(self, key: str, timeout_s: float) -> tuple[str, ...] | None:
        del timeout_s  # it is linear in the key
        for rule in self.file.content(self._parsed):
            found = rule.expression.search(key)
            if found is not None:
                groups = (key, *(each or "" for each in found.groups()))
                return checked(self.name, [_filled(each, groups) for each in rule.values],
                               self.check)
        return None

    def _parsed(self, text: str) -> list[_Rule]:
        import re2

        options = re2.Options()
        options.case_sensitive, options.log_errors = False, False
        options.max_mem = EXPRESSION_MEMORY_MAX
        rules: list[_Rule] = []
        for number, line in joined_lines(text):
            where = f"{self.name}: {self.file.path}:{number}"
            found = _EXPRESSION.fullmatch(line)
            if found is None or not found[2].strip():
                raise MapFailed(where, "expected /expression/ values")
            if len(found[1].encode()) > EXPRESSION_BYTES_MAX or len(rules) >= EXPRESSIONS_MAX:
                raise MapFailed(where, f"more than {EXPRESSIONS_MAX} expressions, or one of more "
                                       f"than {EXPRESSION_BYTES_MAX} bytes")
            try:
                expression = re2.compile(found[1], options)
            except re2.error as error:
                reason = error.args[0] if error.args else error
                told = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
                raise MapFailed(where, f"not an RE2 expression: {told}") from error
            values = tuple(each.strip() for each in found[2].split(",") if each.strip())
            for value in values:
                _check_references(where, value, expression.groups)
            rules.append(_Rule(expression, values))
        return rules


_EXPRESSION: Final = re.compile(r"/(.*)/\s+(.*)")
_REFERENCE: Final = re.compile(r"\$\$|\$(?:(\d)|\{(\d{1,2})\}|\((\d{1,2})\))")


def _filled(value: str, groups: Sequence[str]) -> str:
    """The value with what brackets matched. It stays one value, whatever they matched."""
    return _REFERENCE.sub(
        lambda at: "$" if at[0] == "$$" else groups[int(at[1] or at[2] or at[3])], value)


def _check_references(where: str, value: str, groups: int) -> None:
    rest = _REFERENCE.sub("", value)
    numbers = [int(one or two or three) for one, two, three in _REFERENCE.findall(value)
               if one or two or three]
    if "$" in rest or any(number > groups for number in numbers):
        raise MapFailed(where, f"{escape(value)!r}: $1 to ${groups} and $$ are known here")


@dataclass(slots=True)
class CommandMap:
    """A command that is asked about each key, in its words and on its standard input. It ends with
    0 and writes the values, or nothing; or with 67 (EX_NOUSER): nothing stands for the key."""

    name: str
    pipe: Pipe
    check: Check

    def look_up(self, key: str, timeout_s: float) -> tuple[str, ...] | None:
        words = arguments([each.replace("{address}", "{recipient}") for each in self.pipe.words],
                          "", key)
        if words is None:
            return None  # it would be an option, so nothing can stand for it
        try:
            code, said = answer_of(words, self.pipe.user, key.encode() + b"\n", timeout_s,
                                   ANSWER_BYTES_MAX)
        except TimeoutError as error:
            raise MapFailed(self.name, f"no end in {duration(timeout_s)}") from error
        except (OSError, subprocess.SubprocessError) as error:
            raise MapFailed(self.name, str(error)) from error
        if code == NO_ENTRY:
            return None
        if code:
            raise MapFailed(self.name, f"it ended with {code}")
        if len(said) >= ANSWER_BYTES_MAX:
            raise MapFailed(self.name, f"more than {ANSWER_BYTES_MAX} bytes")
        try:
            return checked(self.name, said.decode("utf-8").replace("\n", ",").split(","),
                           self.check)
        except UnicodeDecodeError as error:
            raise MapFailed(self.name, "its answer is not UTF-8") from error


@dataclass(slots=True)
class SqliteMap:
    """A statement that reads; `:address`, `:local` and `:domain` are the key and its parts. The
    first column of each row has values."""

    name: str
    path: Path
    statement: str
    check: Check

    def look_up(self, key: str, timeout_s: float) -> tuple[str, ...] | None:
        local, domain = split_address(key)
        ends = time.monotonic() + timeout_s
        try:
            database = sqlite3.connect(f"file:{quote(str(self.path))}?mode=ro", uri=True,
                                       timeout=timeout_s, isolation_level=None)
            try:
                database.set_progress_handler(lambda: time.monotonic() > ends, _STEPS)
                database.set_authorizer(_only_reads)
                database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, ANSWER_BYTES_MAX)
                rows = database.execute(self.statement, {
                    "address": key, "local": local, "domain": domain}).fetchmany(VALUES_MAX + 1)
            finally:
                database.close()
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
            raise MapFailed(self.name, str(error)) from error
        if len(rows) > VALUES_MAX:
            raise MapFailed(self.name, f"more than {VALUES_MAX} rows for one key")
        found = [row[0] for row in rows if row[0] is not None]
        if not all(isinstance(each, str) for each in found):
            raise MapFailed(self.name, "the first column is not text")
        return checked(self.name, [one for each in found for one in each.split(",")], self.check)


def _only_reads(action: int, first: str | None, second: str | None, database: str | None,
                trigger: str | None) -> int:
    del first, database, trigger
    allowed = action in _READING or (
        action == sqlite3.SQLITE_FUNCTION and second != "load_extension")
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY
