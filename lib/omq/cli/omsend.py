"""omsend: puts messages on queues and prints their ids, one a line; with -t it submits mail.

    omsend QUEUE[,QUEUE...] [FILE...]     each FILE is a message; none or '-' is the standard input
    omsend -t [-f SENDER] [ADDRESS...]    a mail on the standard input, as sendmail takes it

An id is printed when its message is acknowledged, so after an error in the middle the ids printed
are those of the messages that are there. What the options do not say (priority, persistence) is
what queues.conf says of the first queue.

Errors: InputUnreadable, MessageTooLong, BadName, BadPriority, BadProperty, BadRequest before
anything is put; else those of the client library.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import BinaryIO, Final

import omq
from omq.base import limits
from omq.base.config import QueueConf, load_queues, load_settings
from omq.base.errors import (
    BadProperty,
    BadRequest,
    InputUnreadable,
    MessageTooLong,
    SpoolMissing,
)
from omq.base.names import (
    ROUTER,
    check_property_name,
    check_queue_name,
    parse_message_id,
    parse_priority,
)
from omq.base.settings import Settings
from omq.cli.common import Location, locate, seconds, tool_parser
from omq.cli.mail_submission import submission

NAME: Final = "omsend"
STDIN: Final = "-"
_MESSAGE_ID_DIGITS: Final = 2 * limits.MESSAGE_ID_BYTES


def main(argv: list[str] | None = None) -> int:
    """The command; its exit code."""
    options = _parser().parse_args(argv)
    location = locate(options)
    if not location.paths.root.is_dir():
        raise SpoolMissing(path=location.paths.root)
    settings = load_settings(location.conf_dir)
    messages = _mail(options, settings) if options.mail else _files(options, location, settings)
    message = next(messages, None)
    # A manager that is just being restarted is waited for.
    with omq.connect(
        spool=location.paths.root, name=NAME, timeout_s=float(settings.reconnect_grace_s)
    ) as connection:
        while message is not None:
            message_id = connection.put(
                message.queues, message.body, priority=message.priority,
                properties=message.properties, persistent=message.persistent,
                correlation_id=message.correlation_id, expiry_s=message.expiry_s,
                reply_to=message.reply_to, delay_s=message.delay_s,
            )  # fmt: skip
            sys.stdout.write(f"{message_id}\n")
            sys.stdout.flush()
            message = next(messages, None)
    return 0


def _files(
    options: argparse.Namespace, location: Location, settings: Settings
) -> Iterator[omq.Outgoing]:
    if not options.words:
        raise BadRequest(reason="no queue is named; see omsend --help")
    queues = tuple(check_queue_name(name) for name in options.words[0].split(","))
    conf = load_queues(location.conf_dir).get(queues[0], QueueConf(queues[0]))
    priority = conf.priority_default if options.priority is None else options.priority
    persistent = conf.persistent_default if options.persistent is None else options.persistent
    properties = _properties(options.property)
    correlation_id = _correlation_id(options.correlation_id)
    for name in options.words[1:] or [STDIN]:
        yield omq.Outgoing(
            body=_read(name, settings.body_bytes_max, queues[0]),
            queues=queues,
            priority=priority,
            properties=properties,
            persistent=persistent,
            correlation_id=correlation_id,
            expiry_s=options.expiry,
            reply_to=options.reply_to,
            delay_s=options.defer,
        )


def _mail(options: argparse.Namespace, settings: Settings) -> Iterator[omq.Outgoing]:
    text = _read(STDIN, settings.smtp_message_bytes_max, ROUTER)
    mail = submission(text, options.words, options.sender, settings)
    yield omq.Outgoing(
        body=mail.body,
        queues=(ROUTER,),
        priority=mail.priority if options.priority is None else options.priority,
        persistent=True,
        properties=_properties(options.property) | mail.envelope.properties(),
        correlation_id=_correlation_id(options.correlation_id),
        delay_s=options.defer,
    )


def _read(name: str, limit: int, queue: str) -> bytes:
    """The whole input, never more than `limit` bytes of it in memory."""
    try:
        if name == STDIN:
            return _bounded(sys.stdin.buffer, limit, queue)
        with open(name, "rb") as stream:
            return _bounded(stream, limit, queue)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputUnreadable(file="standard input" if name == STDIN else name,
                              reason=reason) from error


def _bounded(stream: BinaryIO, limit: int, queue: str) -> bytes:
    data = stream.read(limit + 1)
    if len(data) > limit:
        raise MessageTooLong(size=f"more than {limit}", queue=queue, limit=limit)
    return data


def _properties(words: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise BadProperty(name=name, rule="written as NAME=VALUE")
        try:
            value.encode()
        except UnicodeEncodeError as error:  # bytes of the command line that are not UTF-8
            raise BadProperty(name=name, rule="a value of UTF-8 text") from error
        found[check_property_name(name)] = value
    return found


def _correlation_id(text: str) -> bytes:
    """48 hexadecimal digits are the id of another message, anything else stands for itself."""
    if len(text) == _MESSAGE_ID_DIGITS:
        return parse_message_id(text)
    identifier = text.encode("utf-8", "surrogateescape")
    if len(identifier) > limits.CORRELATION_ID_BYTES:
        rule = f"{_MESSAGE_ID_DIGITS} hexadecimal digits or at most {limits.CORRELATION_ID_BYTES}"
        raise BadRequest(reason=f"a correlation id is {rule} bytes of text")
    return identifier


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(
        NAME,
        "Put messages on queues and print their ids; with -t submit a mail.",
        """
        echo hello | omsend ORDERS
        omsend ORDERS,AUDIT --priority urgent --property customer=42 order1.xml order2.xml
        omsend ORDERS --correlation-id 4f4d51310000000000000000000000000000000000000007 reply.xml
        omsend -t -f billing@example.org < invoice.eml
        (echo 'To: bob'; echo 'Subject: disk'; echo; df) | omsend -t
        """,
    )
    parser.usage = (
        "omsend [OPTION...] QUEUE[,QUEUE...] [FILE...]\n"
        "       omsend [OPTION...] -t [-f SENDER] [ADDRESS...]"
    )
    parser.add_argument("words", nargs="*", metavar="QUEUE and FILEs, or ADDRESSes",
                        help="with several queues the message is on all of them; FILE '-' or none:"
                        " the standard input")  # fmt: skip
    _add_message_options(parser)
    mail = parser.add_argument_group("mail")
    mail.add_argument("-t", dest="mail", action="store_true",
                      help="take a mail from the standard input, its recipients from To, Cc and"
                      " Bcc and from the arguments; Bcc is removed")  # fmt: skip
    mail.add_argument("-f", dest="sender", metavar="SENDER",
                      help="envelope sender ('' or '<>': none); default: the user at this host")
    mail.add_argument("-i", "-oi", dest="ignored", action="store_true",
                      help="as in sendmail; a line with a dot never ends the input here")
    return parser


def _add_message_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("message")
    group.add_argument("--priority", metavar="P", type=parse_priority,
                       help="0 to 9 (first), or urgent (7), normal (4), low (1)")
    group.add_argument("--property", metavar="NAME=VALUE", action="append", default=[],
                       help="may be given several times")
    group.add_argument("--persistent", action="store_true", default=None,
                       help="to survive every crash, whatever the queue's default is")
    group.add_argument("--non-persistent", dest="persistent", action="store_false",
                       help="gone when the queue manager stops, and faster")
    group.add_argument("--correlation-id", metavar="ID", default="",
                       help="id of another message, or up to 24 bytes of text")
    group.add_argument("--reply-to", metavar="QUEUE", default="", help="where answers are expected")
    group.add_argument("--defer", metavar="S", type=seconds, default=0.0,
                       help="not handed out before S seconds have passed")
    group.add_argument("--expiry", metavar="S", type=seconds,
                       help="of no use to anybody after S seconds")
