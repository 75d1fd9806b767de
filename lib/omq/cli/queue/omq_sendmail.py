"""omq-sendmail: hands in mail as every sendmail program does; also mailq and newaliases.

Cron, mail() of PHP, git send-email, mutt and others start a program of this name with options that
go back to 1983. Those that mean something here do it; those that say how another program is to work
(-o..., -O, -d, -B, -h, -L, -G, -n, -U, -X) are taken and mean nothing.

The exit code is one of sysexits.h: 0 the mail is safe; 64 the options, 65 the mail, 77 who asks is
wrong; 69, 71, 74, 75 later. Nothing is ever kept by this program: what it could not hand in is its
caller's.

Errors: InputUnreadable, MessageTooLong, BadRequest, those of sendmail_hand_in.
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import Final

from omq.base.config import client_settings
from omq.base.errors import BadRequest, Exit, InputUnreadable, MessageTooLong
from omq.base.names import ROUTER
from omq.base.paths import existing_spool
from omq.base.settings import Settings
from omq.cli.common import Location, locate, say, tool_parser
from omq.cli.queue.sendmail_hand_in import NAME, Hand
from omq.cli.queue.sendmail_session import Session
from omq.services.mail.drop_protocol import Request

_MODES: Final = {"m": "take a mail", "s": "SMTP on standard input and output",
                 "p": "print the queue, as mailq", "i": "check the aliases, as newaliases"}
_END: Final = "--"
_DOT: Final = re.compile(rb"^\.\r?\n", re.MULTILINE)


def main(argv: list[str] | None = None) -> int:
    """The program; its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    end = words.index(_END) if _END in words else len(words)  # argparse forgets it when intermixed
    options = _parser().parse_intermixed_args(_spelt_out(words[:end]))
    options.words += words[end + 1:]
    location = locate(options)
    existing_spool(location.paths.root)
    if options.queue is not None:
        return _flush(location)
    if options.mode == "p":
        from omq.cli.queue.sendmail_mailq import print_queue  # it reads what others may not

        return print_queue(location, client_settings(location.conf_dir).body_bytes_max)
    if options.mode == "i":
        return _check_aliases(location)
    settings = client_settings(location.conf_dir)
    with Hand(location, settings) as hand:
        if options.mode == "s":
            return Session(hand, settings).run()
        mail_id = hand.give(*_mail(options, settings))
        if options.verbose:
            say(NAME, f"{mail_id}: the mail is safe; 'omqlog --mail {mail_id}' tells its way")
    return Exit.OK


def _spelt_out(words: list[str]) -> list[str]:
    """-q, -d and -h take a value only where it is attached, which argparse cannot say."""
    return [f"--queue={word[2:]}" if re.fullmatch(r"-q[^-]*", word) else
            "--debug" if re.fullmatch(r"-d[0-9.,-]*|-h[0-9]+", word) else word for word in words]


def _mail(options: argparse.Namespace, settings: Settings) -> tuple[Request, bytes]:
    if not options.words and not options.read:
        raise BadRequest(reason="no recipient: name them, or say -t to take those of the header")
    draft = _draft(settings.smtp_message_bytes_max, dots=not (options.ignore_dots or any(
        each.startswith("i") for each in options.other)))
    return Request(len(draft), options.sender, tuple(options.words), options.read,
                   options.full_name, options.notify.upper(), _ret(options.ret),
                   options.envid), draft


def _draft(limit: int, *, dots: bool) -> bytes:
    """Standard input, in full; `dots`: or up to a line with a dot alone."""
    try:
        data = sys.stdin.buffer.read(limit + 1)
    except OSError as error:
        raise InputUnreadable(file="standard input", reason=error.strerror or str(error)) from error
    end = _DOT.search(data) if dots else None
    if end is not None:
        data = data[:end.start()]
    if len(data) > limit:
        raise MessageTooLong(size=f"more than {limit}", queue=ROUTER, limit=limit)
    return data


def _ret(text: str) -> str:
    return {"FULL": "FULL", "HDRS": "HDRS", "": ""}.get(text.upper(), text)


def _flush(location: Location) -> int:
    """What waits for its next try is ready; of the queues of mail, each that has such."""
    from omq.base import names
    from omq.base.errors import NothingMeant
    from omq.cli.operate.flush import main as flush

    for queue in (names.UNIX, names.LOCAL):
        try:
            flush([queue, *location.arguments()])
        except NothingMeant:
            continue  # nothing waits there
    return Exit.OK


def _check_aliases(location: Location) -> int:
    """newaliases: there is nothing to build, a mistake is reported. ConfigError."""
    from omq.services.mail.routes_file import load_routes

    aliases = load_routes(location.conf_dir).aliases
    sys.stdout.write(f"{location.conf_dir}/routes.conf: {len(aliases)} aliases, nothing to build; "
                     "in force after a reload ('systemctl reload omq-router omq-smtp')\n")
    return Exit.OK


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(
        NAME,
        "Submit a mail from the standard input, as sendmail does. Once this exits with 0 the mail "
        "is safe, even while the queue manager is away.",
        """
        omq-sendmail -t -i < invoice.eml
        omq-sendmail -i -f billing@example.org -F 'The Billing' -- bob@example.net < text
        omq-sendmail -bp
        """,
    )
    parser.add_argument("words", nargs="*", metavar="ADDRESS", help="recipients")
    mail = parser.add_argument_group("mail")
    mail.add_argument("-t", dest="read", action="store_true",
                      help="recipients are also those of To, Cc and Bcc; Bcc is always removed")
    mail.add_argument("-i", dest="ignore_dots", action="store_true",
                      help="a line with a dot alone does not end the mail (also -oi)")
    mail.add_argument("-f", "-r", dest="sender", metavar="SENDER",
                      help="envelope sender ('' or '<>': none); default: the user at this host")
    mail.add_argument("-F", dest="full_name", metavar="NAME", default="",
                      help="full name, used if the From field is missing")
    mail.add_argument("-N", dest="notify", metavar="WHEN", default="",
                      help="what to report to the sender: never, or some of failure,delay,success")
    mail.add_argument("-R", dest="ret", metavar="WHAT", default="",
                      help="how much of the mail a report has: full or hdrs")
    mail.add_argument("-V", dest="envid", metavar="ID", default="",
                      help="the sender's own id of the mail, for reports")
    mail.add_argument("-v", dest="verbose", action="store_true", help="print the id of the mail")
    other = parser.add_argument_group("other work")
    other.add_argument("-b", dest="mode", choices=tuple(_MODES), default="m",
                       help="; ".join(f"{mode}: {text}" for mode, text in _MODES.items()))
    other.add_argument("--queue", nargs="?", const="", metavar="WHAT",
                       help="-q: retry now what waits for its next attempt")
    taken = parser.add_argument_group("accepted and ignored")
    taken.add_argument("-o", dest="other", action="append", metavar="X", default=[],
                       help="an option of Sendmail; i is -i")
    for letter in "ABCLOXep":
        taken.add_argument(f"-{letter}", dest="_", metavar="X", help=argparse.SUPPRESS)
    for letter in "GIUnmscx":
        taken.add_argument(f"-{letter}", dest="_", action="store_true", help=argparse.SUPPRESS)
    taken.add_argument("--debug", dest="_", action="store_true", help=argparse.SUPPRESS)
    return parser
