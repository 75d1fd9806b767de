"""Postfix's policy delegation protocol, the client's side: a question about a recipient, an action.

    request=smtpd_access_policy LF name=value LF ... LF        the question
    action=WORD [text] LF LF                                   the answer

Source: Postfix's SMTPD_POLICY_README. Known actions: OK and DUNNO, REJECT, DEFER, DEFER_IF_PERMIT,
DEFER_IF_REJECT, 4NN and 5NN with a text, DISCARD, HOLD, PREPEND, REDIRECT, BCC, INFO and WARN.

Invariants: 1. no value that a client wrote can begin another line of a question; 2. an answer has a
length and a time; 3. no text of an answer can end a line of a reply or a header.

Errors: PolicyFailed, whose text says what.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

ANSWER_BYTES_MAX: Final = 16 * 1024
VALUE_CHARACTERS_MAX: Final = 1000
_WORD: Final = re.compile(r"[A-Za-z_]+|[45][0-9][0-9]|[0-9]+")
_ENHANCED: Final = re.compile(r"[45]\.[0-9]{1,3}\.[0-9]{1,3}(?: |\Z)")
_REFUSALS: Final = {"REJECT": ("554", "5.7.1", "access denied"),
                    "DEFER": ("450", "4.7.1", "try again later"),
                    "DEFER_IF_PERMIT": ("450", "4.7.1", "try again later")}
PASSED: Final = frozenset(("OK", "DUNNO", "DEFER_IF_REJECT"))
OTHERS: Final = frozenset(("DISCARD", "HOLD", "PREPEND", "REDIRECT", "BCC", "INFO", "WARN"))


class PolicyFailed(Exception):
    """It is away, silent, or says what is not an action."""


@dataclass(frozen=True, slots=True)
class Action:
    """`word`: in capitals; `reply`: of a refusal, whole, empty for all else."""

    word: str
    text: str = ""
    reply: str = ""


def question(values: Mapping[str, str]) -> bytes:
    """The request; values have one line each."""
    lines = [f"{name}={_one_line(value)}\n" for name, value in values.items()]
    return ("request=smtpd_access_policy\n" + "".join(lines) + "\n").encode("utf-8", "replace")


def _one_line(value: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in value)[:VALUE_CHARACTERS_MAX]


def action(answer: bytes) -> Action:
    """What an answer says. PolicyFailed."""
    for line in answer.decode("utf-8", "replace").split("\n"):
        name, _, value = line.partition("=")
        if name.strip() == "action":
            return _action(_one_line(value.strip()))
    raise PolicyFailed("its answer has no action")


def _action(value: str) -> Action:
    word, _, text = value.partition(" ")
    word, text = word.upper(), text.strip()
    if _WORD.fullmatch(word) is None:
        raise PolicyFailed("its action is not a word")
    if word.isdigit():
        if len(word) == 3 and word[0] in "45":
            return Action(word, text, _reply(word, f"{word[0]}.7.1", text or "refused"))
        return Action("OK")  # any other number is one, as in Postfix's access(5)
    if word in _REFUSALS:
        code, status, said = _REFUSALS[word]
        return Action(word, text, _reply(code, status, text or said))
    if word not in PASSED | OTHERS:
        raise PolicyFailed(f"its action {word} is not known here")
    return Action(word, text)


def _reply(code: str, status: str, text: str) -> str:
    if _ENHANCED.match(text):
        return f"{code} {text}" if text[0] == code[0] else f"{code} {status} {text[6:]}"
    return f"{code} {status} {text}"


async def ask(place: str, values: Mapping[str, str], timeout_s: float) -> Action:
    """Ask the service at inet:host:port or unix:/path, over a new connection. PolicyFailed."""
    kind, _, where = place.partition(":")
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(timeout_s):
            if kind == "unix":
                reader, writer = await asyncio.open_unix_connection(
                    where, limit=ANSWER_BYTES_MAX)
            else:
                host, _, port = where.rpartition(":")
                reader, writer = await asyncio.open_connection(
                    host.strip("[]"), int(port), limit=ANSWER_BYTES_MAX)
            writer.write(question(values))
            await writer.drain()
            return action(await reader.readuntil(b"\n\n"))
    except TimeoutError as error:
        raise PolicyFailed("it gives no answer in time") from error
    except asyncio.LimitOverrunError as error:
        raise PolicyFailed("its answer is too long") from error
    except asyncio.IncompleteReadError as error:
        raise PolicyFailed("it went away without an answer") from error
    except OSError as error:
        raise PolicyFailed(error.strerror or str(error)) from error
    finally:
        if writer is not None:
            writer.close()
