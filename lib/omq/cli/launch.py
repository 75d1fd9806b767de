"""Starts every command and daemon of omq by its name; what bin/ and the installed scripts call.

One place decides how a program ends: an omq error is one line on stderr and the exit code of its
class, wrong options are code 64, a closed pipe or ^C end quietly, and a bug of ours shows its
traceback and gives 70. Targets are imported when they are named, so that a small tool starts fast.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final

from omq.base.errors import Exit, OmqError
from omq.base.names import escape

COMMANDS: Final[dict[str, str]] = {
    "queue.manager": "omq.services.queue_manager:main",
    "pool.writer": "omq.services.pool_writer:main",
    "idel.server": "omq.services.idel_server:main",
    "service.router": "omq.services.router:main",
    "local.delivery": "omq.services.local_delivery:main",
    "unix.out": "omq.services.unix_out:main",
    "smtp.server": "omq.services.smtp_server:main",
    "error.manager": "omq.services.error_manager:main",
    "omq": "omq.cli.omq_main:main",
    "omrc": "omq.cli.omrc:main",
    "omshut": "omq.cli.omshut:main",
    "omon": "omq.cli.omon:main",
    "omoff": "omq.cli.omoff:main",
    "omsetsvc": "omq.cli.omsetsvc:main",
    "omstat": "omq.cli.omstat:main",
    "omsend": "omq.cli.omsend:main",
    "omread": "omq.cli.omread:main",
    "omqdump": "omqdump.main:main",
    "omq-archive": "omq.cli.omq_archive:main",
    "omq-spark": "omqspark.main:main",
    "omqtest": "omqtest.main:main",
    "omqrecover": "omqrecover.main:main",
    "omqconv": "omq.cli.omqconv:main",
    "omtop": "omq.cli.omtop:main",
    "omqlog": "omq.cli.omqlog:main",
    "omqwhy": "omq.cli.omqwhy:main",
    "omqshape": "omq.cli.omqshape:main",
    "omqadvise": "omq.cli.omqadvise:main",
    "omqcheck": "omq.cli.omqcheck:main",
    "omscan": "omq.cli.omscan:main",
    "omshowlog": "omq.cli.omshowlog:main",
    "omfreeq": "omq.cli.omfreeq:main",
    "omhold": "omq.cli.order_command:hold",
    "omrelease": "omq.cli.order_command:release",
    "omrequeue": "omq.cli.order_command:requeue",
}

INTERRUPTED: Final = 130  # what a shell gives for a process that SIGINT ended
BROKEN_PIPE: Final = 141  # the same for SIGPIPE
ARGPARSE_USAGE: Final = 2  # argparse exits with this; our table says 64
MESSAGE_CHARACTERS_MAX: Final = 2000


def main(argv: list[str] | None = None) -> int:
    """`python -m omq.cli.launch NAME [ARGUMENT...]`."""
    words = sys.argv[1:] if argv is None else argv
    if not words or words[0] not in COMMANDS:
        sys.stderr.write(f"usage: launch NAME [ARGUMENT...]; names: {' '.join(COMMANDS)}\n")
        return Exit.USAGE
    return run(words[0], words[1:])


def script() -> int:
    """Entry of the scripts of an installed package: the command is the script's own name."""
    return run(Path(sys.argv[0]).name, sys.argv[1:])


def run(name: str, arguments: list[str]) -> int:
    """Run the command `name`; its exit code."""
    sys.argv = [name, *arguments]  # argparse and listings show the command, not this module
    try:
        code = _target(name)(arguments)
        sys.stdout.flush()  # here, so that a full disk or a closed pipe is seen and not lost
        return code
    except OmqError as error:
        sys.stderr.write(f"{name}: {escape(str(error), MESSAGE_CHARACTERS_MAX)}\n")
        return error.exit_code
    except SystemExit as stop:
        return _exit_code(name, stop.code)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return BROKEN_PIPE
    except Exception:
        traceback.print_exc()
        return Exit.SOFTWARE


def _target(name: str) -> Callable[[list[str]], int]:
    module, _, function = COMMANDS[name].partition(":")
    target: Callable[[list[str]], int] = getattr(importlib.import_module(module), function)
    return target


def _exit_code(name: str, code: object) -> int:
    if code is None:
        return Exit.OK
    if isinstance(code, int):
        return Exit.USAGE if code == ARGPARSE_USAGE else code
    sys.stderr.write(f"{name}: {code}\n")
    return Exit.USAGE


def _forget_stdout() -> None:
    """The interpreter flushes stdout once more at its end; that must not complain again."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


if __name__ == "__main__":
    sys.exit(main())
