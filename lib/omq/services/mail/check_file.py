"""Header and body checks: regular expressions, and what happens to a mail that has what they match.

    /expression/flags ACTION text        what matches
    !/expression/flags ACTION text       what does not
    if /expression/flags                 the lines up to `endif` are for what matches; if !/.../ for
    endif                                what does not

A line that begins with a space goes on with the one before it; '#' begins a comment. Any character
but a letter, digit or space may be used instead of the slashes. Case does not count, '.' matches a
line end, '^' and '$' the ends of the whole; the flags i, s and m turn each of these round. $1 or
${1} in the text is what the first bracket matched, $$ a dollar. Postfix's header_checks(5) and
pcre_table(5), but for what is listed in ACTIONS_LACKING, and look-around and backreferences, which
RE2 does not have: each is refused by its name.

Rules:
1. A match is bounded: RE2's time is linear in what it looks at, times the size of the expression,
   which has a limit (PROGRAM_MAX).
2. The text of an action is ASCII, and what a bracket matched is made so: nothing of a mail can
   begin another field, line or reply.

Errors: MapFailed, with the place in the file: the mail waits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from omq.base.limits import KIB, MIB
from omq.base.names import escape
from omq.services.mail.mail_message import address_problem
from omq.services.mail.map_errors import MapFailed
from omq.services.mail.smtp_address import grammar_problem
from omq.services.mail.watched_file import Watched, joined_lines

EXPRESSIONS_MAX: Final = 1000
EXPRESSION_BYTES_MAX: Final = 4 * KIB
MEMORY_MAX: Final = 1 * MIB  # of an expression
PROGRAM_MAX: Final = 4000
"""Steps of an expression: beyond it a field of 100 KiB may take several seconds."""
TEXT_MAX: Final = 500
_REPLY_MAX: Final = 510
FILLED_MAX: Final = 900  # of a line of 998 (RFC 5322 2.1.1)
ACTIONS_LACKING: Final = ("FILTER",)


class Action(Enum):
    """What happens to the mail, or of the field or line."""

    REJECT = "REJECT"  # 550, with the text
    DISCARD = "DISCARD"  # taken, and gone
    HOLD = "HOLD"  # taken, and put on DEFER
    REDIRECT = "REDIRECT"  # to this recipient alone
    BCC = "BCC"  # to this recipient, too
    PREPEND = "PREPEND"  # this field or line before it
    REPLACE = "REPLACE"  # by this field or line
    IGNORE = "IGNORE"  # the field or line goes
    STRIP = "STRIP"  # likewise, and mail.log says so
    WARN = "WARN"  # mail.log says so
    INFO = "INFO"  # likewise
    PASS = "PASS"  # nothing more of this mail is looked at
    DUNNO = "DUNNO"  # nothing more of this field or line
    OK = "OK"  # likewise


_WITH_TEXT: Final = frozenset((Action.REDIRECT, Action.BCC, Action.PREPEND, Action.REPLACE))
_FIELD: Final = re.compile(r"[!-9;-~]+:.*")
_REFERENCE: Final = re.compile(r"\$\$|\$(?:(\d)|\{(\d{1,2})\}|\((\d{1,2})\))")
_UNFIT: Final = re.compile(r"[^ -~]+")
_WORDS: Final = "the content is not taken"
_STATUS: Final = re.compile(r"(5\.\d{1,3}\.\d{1,3})(?: +(.*))?")


@dataclass(frozen=True, slots=True)
class Matched:
    """An action that is due; `text`: with what brackets matched in it."""

    action: Action
    text: str
    where: str  # file:line


@dataclass(frozen=True, slots=True)
class _Rule:
    where: str
    expression: Any
    negated: bool
    action: Action | None  # None: the rules up to `end` are for what matches
    text: str
    end: int = 0


class Rules:
    """A file's."""

    def __init__(self, rules: Sequence[_Rule]) -> None:
        self._rules = rules

    def first(self, text: str, tick: Callable[[], None]) -> Matched | None:
        """What is due for a field or line: the first that matches. `tick` is called before each
        expression, for who counts the time."""
        at = 0
        while at < len(self._rules):
            rule = self._rules[at]
            tick()
            match = rule.expression.search(text)
            at += 1
            if (match is None) != rule.negated:
                if rule.action is None:
                    at = rule.end
                continue
            if rule.action is not None:
                return Matched(rule.action, _filled(rule, match), rule.where)
        return None

    def __len__(self) -> int:
        return len(self._rules)


@dataclass(slots=True)
class CheckFile:
    """One file, read again when it has changed."""

    file: Watched
    of_fields: bool  # what is added is a field of a header, not a line

    def rules(self) -> Rules:
        """As the file is now. MapFailed."""
        return self.file.content(self._parsed)

    def _parsed(self, text: str) -> Rules:
        found: list[_Rule] = []
        open_ones: list[int] = []
        for number, line in joined_lines(text):
            where = f"{self.file.path}:{number}"
            if len(found) >= EXPRESSIONS_MAX:
                raise MapFailed(where, f"more than {EXPRESSIONS_MAX} expressions")
            word, _, rest = line.partition(" ")
            if word.lower() == "endif":
                if not open_ones or rest:
                    raise MapFailed(where, "endif without if, or words after it")
                begun = found[open_ones[-1]]
                found[open_ones.pop()] = _Rule(begun.where, begun.expression, begun.negated, None,
                                               "", len(found))
            elif word.lower() == "if":
                expression, negated, rest = _expression(where, rest.strip())
                if rest:
                    raise MapFailed(where, "words after the expression of an if")
                open_ones.append(len(found))
                found.append(_Rule(where, expression, negated, None, ""))
            else:
                found.append(self._rule(where, line))
        if open_ones:
            raise MapFailed(found[open_ones[-1]].where, "this if has no endif")
        return Rules(found)

    def _rule(self, where: str, line: str) -> _Rule:
        expression, negated, rest = _expression(where, line)
        word, _, text = rest.partition(" ")
        text = text.strip()
        if word.upper() in ACTIONS_LACKING:
            raise MapFailed(where, f"{word.upper()} is not there: smtp_filter and smtp_milters are "
                                   "the ways to a filter")
        try:
            action = Action(word.upper())
        except ValueError:
            raise MapFailed(where, f"{escape(word)!r} is not an action: "
                                   f"{', '.join(each.value for each in Action)}") from None
        if len(text) > TEXT_MAX or not text.isascii() or not (text.isprintable() or not text):
            raise MapFailed(where, f"its text is not ASCII, or has more than {TEXT_MAX} characters")
        if action in _WITH_TEXT and not text:
            raise MapFailed(where, f"{action.value} needs a text")
        if action in (Action.REDIRECT, Action.BCC) and (problem := "a reference" if "$" in text
                else address_problem(text, smtputf8=False) or grammar_problem(text)):
            raise MapFailed(where, f"{escape(text)!r} is not an address: {problem}")
        if self.of_fields and action in (Action.PREPEND, Action.REPLACE) and (
                not _FIELD.fullmatch(text)):
            raise MapFailed(where, f"{action.value} needs a field of a header: 'Name: value'")
        numbers = [int(one or two or three) for one, two, three in _REFERENCE.findall(text)
                   if one or two or three]
        if "$" in _REFERENCE.sub("", text) or any(
                each > (0 if negated else expression.groups) for each in numbers):
            raise MapFailed(where, f"{escape(text)!r}: $1 to ${expression.groups} and $$ are known "
                                   "here, and none after !")
        return _Rule(where, expression, negated, action, text)


def _expression(where: str, text: str) -> tuple[Any, bool, str]:
    """(what is at the beginning of the text, whether it is negated, the rest)."""
    negated = text.startswith("!")
    text = text[negated:].lstrip()
    mark = text[:1]
    if not mark or mark.isalnum() or mark in " \\":
        raise MapFailed(where, "expected /expression/ ACTION")
    end = 1
    while end < len(text) and text[end] != mark:
        end += 2 if text[end] == "\\" else 1
    if end >= len(text):
        raise MapFailed(where, f"the expression has no {mark!r} at its end")
    flags, _, rest = text[end + 1 :].partition(" ")
    pattern = text[1:end].replace(f"\\{mark}", mark) if mark != "/" else text[1:end]
    return _compiled(where, pattern, flags), negated, rest.strip()


def _compiled(where: str, pattern: str, flags: str) -> Any:
    import re2

    if set(flags) - set("ism"):
        raise MapFailed(where, f"flags {escape(flags)!r}: i, s and m are known here")
    if len(pattern.encode()) > EXPRESSION_BYTES_MAX:
        raise MapFailed(where, f"an expression of more than {EXPRESSION_BYTES_MAX} bytes")
    options = re2.Options()
    options.case_sensitive, options.log_errors = "i" in flags, False
    options.dot_nl, options.max_mem = "s" not in flags, MEMORY_MAX
    try:
        expression = re2.compile(f"(?m){pattern}" if "m" in flags else pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        told = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
        raise MapFailed(where, f"not an RE2 expression: {told}") from error
    if expression.programsize > PROGRAM_MAX:
        raise MapFailed(where, f"an expression of {expression.programsize} steps, allowed are "
                               f"{PROGRAM_MAX}: fewer or smaller repetitions {{m,n}}")
    return expression


def _filled(rule: _Rule, match: Any) -> str:
    if match is None or "$" not in rule.text:
        return rule.text
    groups = [match.group(), *(each or "" for each in match.groups())]
    found = _REFERENCE.sub(
        lambda at: "$" if at[0] == "$$" else groups[int(at[1] or at[2] or at[3])], rule.text)
    return _UNFIT.sub(" ", found)[: FILLED_MAX]


def reply_of(matched: Matched) -> str:
    """What the client hears; what the message itself said of it may be long, a reply line has at
    most 512 octets with its end (RFC 5321, 4.5.3.1.5)."""
    found = _STATUS.fullmatch(matched.text)
    status, text = (found[1], found[2]) if found is not None else ("5.7.1", matched.text)
    return f"550 {status} {text or _WORDS}"[:_REPLY_MAX]
