"""omq-web: the console of an instance in a browser, and its REST interface for programs.

It reads the index in shared memory and the files in run/, as omstat does; only what somebody does
goes to the queue manager, by the way of the tools, in his name. So it shows an instance that hangs
or is dead, too. Who may log in and act: web_users, [console] of authority.conf (CONSOLE.md).

Exit codes: 0; 69 when a package is missing, or the port is taken; 78 for a wrong configuration.
"""

from __future__ import annotations

import argparse
import getpass
import sys
from typing import Final

from omq.base.config import load_settings
from omq.base.errors import BadRequest, Exit, ExtraMissing
from omq.cli.common import existing, tool_parser

NAME: Final = "omq-web"
EXTRA: Final = "omq-suite[web]"


def main(argv: list[str] | None = None) -> int:
    """The program; its exit code."""
    options = _parser().parse_args(argv)
    try:
        if options.password:
            return _password(options.password)
        if options.token:
            return _token(options)
        location = existing(options)
        settings = load_settings(location.conf_dir)
        from omq.cli.web.server import serve
    except ModuleNotFoundError as error:
        raise ExtraMissing(command=NAME, package=error.name, extra=EXTRA) from error
    return serve(location, settings)


def _password(user: str) -> int:
    """The line of a user for web_users; the password from the terminal, or of stdin."""
    import argon2

    if sys.stdin.isatty():
        password = getpass.getpass(f"Password of {user}: ")
        if getpass.getpass("Again: ") != password:
            raise BadRequest(reason="the two are not the same")
    else:
        password = sys.stdin.readline().rstrip("\n")
    if len(password) < 8 or ":" in user:
        raise BadRequest(reason="a password has 8 characters or more, a user no colon")
    sys.stdout.write(f"{user}:{argon2.PasswordHasher().hash(password)}\n")
    return Exit.OK


def _token(options: argparse.Namespace) -> int:
    """A new token: itself once, and the line for web_tokens."""
    from omq.cli.web.tokens import make, read_line

    token, line = make(options.token, options.user, options.scope, options.until)
    if read_line(line.split(":")) is None:
        raise BadRequest(reason="a token needs a name of letters and digits, --user, --scope "
                         "(look browse put get operate define), and --until as YYYY-MM-DD")
    sys.stdout.write(f"{token}\n{line}\n")
    return Exit.OK


def _parser() -> argparse.ArgumentParser:
    found = tool_parser(NAME, "Serve the console of an instance, and its REST interface.", """
        omq-web
        omq-web --password alice >>/etc/omq/web.users
        omq-web --token backup --user alice --scope look --scope browse
        curl -H "Authorization: Bearer omqt_..." http://127.0.0.1:9816/api/v1/queues
        """)
    found.add_argument("--password", metavar="USER", default="",
                       help="print the line for a user in web_users and exit; asks for the "
                            "password")
    found.add_argument("--token", metavar="NAME", default="",
                       help="print a new token and its line for web_tokens, and exit")
    found.add_argument("--user", metavar="USER", default="",
                       help="with --token: whose rights it has")
    found.add_argument("--scope", metavar="SCOPE", action="append", default=[],
                       help="with --token: what it may do: look, browse, put, get, operate or "
                            "define; may be given several times")
    found.add_argument("--until", metavar="DAY", default="",
                       help="with --token: the last day on which it works, 2027-01-31 "
                            "(default: it has no end)")
    return found
