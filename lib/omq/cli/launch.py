"""Starts every command and daemon of omq by its name; what bin/ and the installed scripts call.

One place decides how a program ends: an omq error is one line on stderr and the exit code of its
class, a right that is missing is one with what to do (77), a package that an extra brings is named
(69), wrong options are code 64, a closed pipe or ^C end quietly, and a bug of ours shows its
traceback and gives 70. Standard streams that are closed are opened first (cli.standard_streams). A
standard error that takes nothing changes no exit code. Targets are imported when they are named, so
that a small tool starts fast.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Container
from pathlib import Path
from typing import Final

from omq.base import access, side_files
from omq.base.errors import Exit, ExtraMissing, FileNotWritten, InputUnreadable, OmqError
from omq.base.names import escape
from omq.cli import standard_streams
from omq.cli.programs import ALIASES, PROGRAMS

COMMANDS: Final[dict[str, str]] = {name: row.target for name, row in PROGRAMS.items()}
"""What starts each."""

_SUITE: Final = "omq-suite"
EXTRAS: Final = {
    "numpy": _SUITE, "zstandard": _SUITE, "aiosmtpd": _SUITE,
    "textual": f"{_SUITE}[top]", "pyspark": f"{_SUITE}[spark]", "pandas": f"{_SUITE}[spark]",
    "aiohttp": f"{_SUITE}[web]", "jinja2": f"{_SUITE}[web]",
    "prometheus_client": f"{_SUITE}[metrics]", "plotly": f"{_SUITE}[spark]",
    "proton": f"{_SUITE}[amqp]", "cronsim": f"{_SUITE}[schedules]",
    "pyarrow": f"{_SUITE}[spark]", "matplotlib": f"{_SUITE}[spark]",
}
"""Packages that omq-base does without, and what to install for them."""

_REFUSED: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EROFS)
INTERRUPTED: Final = 130  # what a shell gives for a process that SIGINT ended
BROKEN_PIPE: Final = 141  # the same for SIGPIPE
ARGPARSE_USAGE: Final = 2  # argparse exits with this; our table says 64
MESSAGE_CHARACTERS_MAX: Final = 2000


def main(argv: list[str] | None = None) -> int:
    """`python -m omq.cli.launch NAME [ARGUMENT...]`."""
    words = sys.argv[1:] if argv is None else argv
    if not words or words[0] not in COMMANDS:
        side_files.say(f"usage: launch NAME [ARGUMENT...]; names: {' '.join(COMMANDS)}")
        return Exit.USAGE
    return run(words[0], words[1:])


def script() -> int:
    """Entry of the scripts of an installed package: the command is the script's own name, or
    what a link to it is called (sendmail, mailq, newaliases)."""
    name = Path(sys.argv[0]).name
    name, first = ALIASES.get(name, (name, ()))
    return run(name, [*first, *sys.argv[1:]])


def run(name: str, arguments: list[str]) -> int:
    """Run the command `name`; its exit code."""
    sys.argv = [name, *arguments]  # argparse and listings show the command, not this module
    closed = standard_streams.fill()
    try:
        code = _target(name)(arguments)
        sys.stdout.flush()  # here, so that a full disk or a closed pipe is seen and not lost
        return code
    except OmqError as error:
        return _say(name, error)
    except SystemExit as stop:
        return _exit_code(name, stop.code)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return BROKEN_PIPE
    except PermissionError as error:
        return _say(name, access.denied(error.filename or "something", error))
    except Exception as error:
        known = _of_the_world(name, error, closed)
        if known is not None:
            return _say(name, known)
        side_files.say(traceback.format_exc().rstrip("\n"))
        return Exit.SOFTWARE


def _say(name: str, error: OmqError) -> int:
    side_files.say(f"{name}: {escape(str(error), MESSAGE_CHARACTERS_MAX)}")
    return error.exit_code


def _of_the_world(name: str, error: Exception, closed: Container[int]) -> OmqError | None:
    """What is not a bug although no module made an omq error of it. `closed`: standard streams."""
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        if package in EXTRAS:
            return ExtraMissing(command=name, package=package, extra=EXTRAS[package])
    if isinstance(error, OSError) and error.errno in _REFUSED:
        _forget_stdout()  # it may be the one; what is left in it would fail once more at the end
        return FileNotWritten(path=escape(str(error.filename or "the output")),
                              reason=error.strerror)
    if isinstance(error, OSError) and error.errno == errno.EBADF:
        if standard_streams.STDOUT in closed:
            _forget_stdout()
            return FileNotWritten(path="the output", reason="standard output is closed")
        if standard_streams.STDIN in closed:
            return InputUnreadable(file="standard input", reason="it is closed")
    return None


def _target(name: str) -> Callable[[list[str]], int]:
    module, _, function = COMMANDS[name].partition(":")
    target: Callable[[list[str]], int] = getattr(importlib.import_module(module), function)
    return target


def _exit_code(name: str, code: object) -> int:
    if code is None:
        return Exit.OK
    if isinstance(code, int):
        return Exit.USAGE if code == ARGPARSE_USAGE else code
    side_files.say(f"{name}: {code}")
    return Exit.USAGE


def _forget_stdout() -> None:
    """The interpreter flushes stdout once more at its end; that must not complain again."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


if __name__ == "__main__":
    sys.exit(main())
