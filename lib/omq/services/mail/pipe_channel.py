"""The worker of channel pipe: a command of routes.conf has each mail on its standard input.

Rules:
1. No shell. A command is a list of words; `{sender}` and `{recipient}` in a word are replaced
   within that word, so an address is never more than one argument. One that begins with "-" at the
   beginning of a word, where it would be an option, is refused (5.1.3).
2. Rights: as the user that the line names, with no group but his own; only root can change, and
   root itself runs nothing. The directory is "/", of the environment PATH and LANG are left, no
   descriptor but the three is inherited.
3. Time: `pipe_timeout_s`; then its whole process group is killed. Its first words go to the log and
   to the sender, OUTPUT_BYTES_MAX of them; the rest is read and thrown away.
4. Its exit code is one of sysexits.h: 0 delivered; 75, 71, 74, a signal, a command that cannot be
   started: later; any other: never, with a status of RFC 3463.

Crash argument: killed while the command runs, the mail returns, and the command has it twice.
"""

from __future__ import annotations

import os
import pwd
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from omq.base.amounts import duration
from omq.services.delivery.worker import PEER, RECIPIENTS, Report
from omq.services.mail.mail_message import one_line
from omq.services.mail.smtp_reply import Result, Verdict

if TYPE_CHECKING:
    from omq.base.settings import Settings
    from omq.services.mail.routes import Pipe

OUTPUT_BYTES_MAX: Final = 4096
OUTCOMES: Final[Mapping[int, tuple[Verdict, str]]] = MappingProxyType({
    **dict.fromkeys((71, 74, 75, 126, 127), (Verdict.TEMPORARY, "4.3.0")),
    **{code: (Verdict.PERMANENT, status) for code, status in (
        (64, "5.3.0"), (65, "5.6.0"), (67, "5.1.1"), (68, "5.1.2"), (69, "5.2.1"), (73, "5.2.0"),
        (76, "5.5.0"), (77, "5.7.0"), (78, "5.3.5"))}})
"""What an exit code means, and its status of RFC 3463; others are for good (5.3.0). 126 and 127:
what a shell says of a command that it cannot start."""


class PipeChannel:
    """One process."""

    def __init__(self, settings: Settings, pipes: Mapping[str, Pipe]) -> None:
        self._timeout_s = float(settings.pipe_timeout_s)
        self._pipes = pipes

    def send(self, head: dict[str, Any], body: bytes) -> Report:
        """A run of the command for each recipient."""
        name = head[PEER].partition(":")[0]
        pipe = self._pipes.get(name)
        rows = []
        for recipient in head[RECIPIENTS]:
            found = (Result(recipient, Verdict.TEMPORARY, "4.3.5", "the command is gone")
                     if pipe is None else self._run(pipe, head["sender"], recipient, body))
            rows.append([recipient, found.verdict.value, found.status, found.text, name])
        return Report(rows)

    def idle(self) -> None:
        """There is nothing to give back."""

    def close(self) -> None:
        """Nor at the end."""

    def _run(self, pipe: Pipe, sender: str, recipient: str, body: bytes) -> Result:
        words = arguments(pipe.words, sender, recipient)
        if words is None:
            return Result(recipient, Verdict.PERMANENT, "5.1.3",
                          "an address that begins with '-' would be an option of the command")
        try:
            code, said = run(words, pipe.user, body, self._timeout_s)
        except TimeoutError:  # an OSError, too
            return Result(recipient, Verdict.TEMPORARY, "4.3.0",
                          f"{words[0]} did not end in {duration(self._timeout_s)}")
        except (OSError, subprocess.SubprocessError) as error:
            return Result(recipient, Verdict.TEMPORARY, "4.3.5", one_line(f"{words[0]}: {error}"))
        return outcome(recipient, code, said)


def arguments(words: Sequence[str], sender: str, recipient: str) -> list[str] | None:
    """The command for these addresses; None: one of them would be an option."""
    found = []
    for word in words:
        # In one step: an address that holds the other's name is not replaced again.
        pieces = word.replace("{sender}", "\0s").replace("{recipient}", "\0r").split("\0")
        made = pieces[0] + "".join(
            (sender if each[:1] == "s" else recipient) + each[1:] for each in pieces[1:])
        if made.startswith("-") and not word.startswith("-"):  # also behind an empty sender
            return None
        found.append(made)
    return found


def run(words: Sequence[str], user: str, body: bytes, timeout_s: float, *,
        children_stay: bool = False) -> tuple[int, str]:
    """(exit code, first words) of a command. OSError: it cannot be started. TimeoutError.

    `children_stay`: what it leaves behind is not killed with its end, only with its time-out."""
    code, said = _ended(words, user, body, timeout_s, OUTPUT_BYTES_MAX, subprocess.STDOUT,
                        children_stay=children_stay)
    return code, one_line(said.decode("utf-8", "replace"))


def answer_of(words: Sequence[str], user: str, question: bytes, timeout_s: float, bytes_max: int
              ) -> tuple[int, bytes]:
    """(exit code, the first `bytes_max` of what it wrote to its standard output). OSError,
    TimeoutError."""
    return _ended(words, user, question, timeout_s, bytes_max, subprocess.DEVNULL,
                  children_stay=False)


def _ended(words: Sequence[str], user: str, body: bytes, timeout_s: float, bytes_max: int,
           errors: int, *, children_stay: bool) -> tuple[int, bytes]:
    entry = _entry(user) if user and not os.geteuid() else None
    rights: dict[str, Any] = {} if entry is None else {
        "user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    text = os.memfd_create("omq-pipe", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(text), "wb") as writing:
            writing.write(body)
        os.lseek(text, 0, os.SEEK_SET)
        child = subprocess.Popen(
            words, stdin=text, stdout=subprocess.PIPE, stderr=errors, cwd="/",
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"},
            start_new_session=True, **rights)
    finally:
        os.close(text)
    with child:
        try:
            deadline = time.monotonic() + timeout_s
            said = _said(child, deadline, bytes_max)
            return child.wait(timeout=max(0.1, deadline - time.monotonic())), said
        except subprocess.TimeoutExpired as error:
            raise TimeoutError from error
        finally:
            if child.returncode is None or not children_stay:
                with suppress(ProcessLookupError, PermissionError):  # it has ended, all of it
                    os.killpg(child.pid, signal.SIGKILL)


def _entry(user: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(user)
    except KeyError as error:  # gone since routes.conf was read
        raise FileNotFoundError(f"there is no user {user} any more") from error


def _said(child: subprocess.Popen[bytes], deadline: float, bytes_max: int) -> bytes:
    """Its output, to its end or to that of the command: what it left behind in the background may
    hold the line for ever, and is not part of the answer. TimeoutError."""
    assert child.stdout is not None
    line, kept, poll = child.stdout.fileno(), b"", select.poll()
    ended = os.pidfd_open(child.pid)
    try:
        poll.register(line, select.POLLIN)
        poll.register(ended, select.POLLIN)
        while ready := poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            piece = os.read(line, 65536) if any(each == line for each, _ in ready) else b""
            if not piece:
                return kept
            kept += piece[: max(0, bytes_max - len(kept))]
        raise TimeoutError
    finally:
        os.close(ended)


def outcome(recipient: str, code: int, said: str,
            outcomes: Mapping[int, tuple[Verdict, str]] = OUTCOMES) -> Result:
    """What an exit code means for a recipient."""
    if code == 0:
        return Result(recipient, Verdict.DELIVERED, "2.0.0", said or "delivered to the command")
    words = said or (f"ended by signal {-code}" if code < 0 else f"exit code {code}")
    other = (Verdict.TEMPORARY, "4.3.0") if code < 0 else (Verdict.PERMANENT, "5.3.0")
    return Result(recipient, *outcomes.get(code, other), words)
