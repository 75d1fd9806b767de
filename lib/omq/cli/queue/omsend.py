"""omsend: puts messages on queues and prints their ids, one a line; with -t it submits mail.

    omsend QUEUE[,QUEUE...] [FILE...]     each FILE is a message; none or '-' is the standard input
    omsend -t [-f SENDER] [ADDRESS...]    a mail on the standard input, as sendmail takes it

An id is printed when its message is acknowledged, so after an error in the middle the ids printed
are those of the messages that are there; one that cannot be printed is reported on
standard error. What the options do not say (priority, persistence) and
how long a body may be says the queue manager, for the first queue: what is in its configuration
and it has not taken up yet is nothing to a client.

Errors: InputUnreadable, MessageTooLong, BadName, BadPriority, BadProperty, BadRequest before
anything is put; else those of the client library.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO, Final

import omq
from omq.base import limits
from omq.base.config import client_settings
from omq.base.errors import (
    BadProperty,
    BadRequest,
    InputUnreadable,
    MessageTooLong,
    NotRemote,
)
from omq.base.names import (
    ROUTER,
    check_property_name,
    check_queue_name,
    parse_message_id,
    parse_priority,
)
from omq.base.paths import existing_spool
from omq.base.settings import Settings
from omq.cli.common import add_url, locate, remote, say, seconds, tool_parser
from omq.ipc.client.connection import Client
from omq.services.mail.drafts import Author, submission

NAME: Final = "omsend"
STDIN: Final = "-"
_MESSAGE_ID_DIGITS: Final = 2 * limits.MESSAGE_ID_BYTES


def main(argv: list[str] | None = None) -> int:
    """The command; its exit code."""
    options = _parser().parse_args(argv)
    if options.url:
        if options.mail:
            raise NotRemote(what="-t", instead="submit the mail on the host itself")
        message = _outline(options)
        connected = remote(options, NAME, options.timeout)
    else:
        location = locate(options)
        existing_spool(location.paths.root)
        settings = client_settings(location.conf_dir)
        message = _mail(options, settings) if options.mail else _outline(options)
        patience_s = float(
            settings.reconnect_grace_s if options.timeout is None else options.timeout)
        # A manager that is just being restarted is waited for.
        connected = omq.connect(spool=location.paths.root, name=NAME, timeout_s=patience_s,
                                waiting=partial(say, NAME))
    with connected as connection:
        if options.claim:
            _claim(connection, message, options.words[1:])
            return 0
        for at, body in enumerate([message.body] if options.mail
                                  else _bodies(options, connection)):
            if options.when_done:
                _print_id(_barrier(options, connection, message, body))
                break
            message_id = connection.put(
                message.queues, body, priority=message.priority,
                properties=message.properties, persistent=message.persistent,
                correlation_id=message.correlation_id, expiry_s=message.expiry_s,
                reply_to=message.reply_to, delay_s=message.delay_s,
                unique_key=message.unique_key, **_group(options, message, at),
            )  # fmt: skip
            _print_id(message_id)
    return 0


def _print_id(message_id: str) -> None:
    """It is acknowledged. If its id cannot be printed, an error names it: who takes the exit
    code for a message that is not there sends it twice."""
    try:
        sys.stdout.write(f"{message_id}\n")
        sys.stdout.flush()
    except OSError as error:
        say(NAME, f"message {message_id} is on its queue, but its id could not be printed: "
            f"{error.strerror}; do not send it again")
        raise


def _group(options: argparse.Namespace, message: omq.Outgoing, at: int) -> dict[str, Any]:
    """What `put` takes of the group of file `at`: they are numbered one after another, and the
    last of them is what --last says of it."""
    if not options.group:
        return {}
    return {"group_id": message.group_id,
            "group_sequence": message.group_sequence + at if message.group_sequence else 0,
            "last_in_group": options.last and at + 1 >= len(options.words) - 1}


def _barrier(options: argparse.Namespace, connection: Client, message: omq.Outgoing, body: bytes
             ) -> str:
    """Put a message that waits until others are done; its id."""
    return connection.barrier(
        message.queues[0], options.when_done, body, within_s=options.within,
        properties=message.properties, priority=message.priority)


def _claim(connection: Client, message: omq.Outgoing, names: list[str]) -> None:
    """Put these files without reading them into memory; print their ids."""
    for name in names:
        found = connection.put_file(message.queues, name, replace(message, queues=()))
        _print_id(found.message_id)
        if not found.shared:
            say(NAME, f"{name} was copied: it is small, on another file system than the spool, or "
                "on one that cannot share blocks, or the spool is another user's")


def _check_mail(options: argparse.Namespace) -> None:
    """What a mail cannot have is not passed over."""
    ignored = [word for word, given in (
        ("--when-done", options.when_done), ("--within", options.within is not None),
        ("--claim", options.claim), ("--reply-to", options.reply_to),
        ("--unique-key", options.unique_key), ("--expiry", options.expiry is not None),
        ("--group", options.group), ("--non-persistent", options.persistent is False)) if given]
    if ignored:
        raise BadRequest(reason=f"{ignored[0]} is not for a mail (-t)")


def _check_group(options: argparse.Namespace) -> None:
    if (options.sequence or options.last) and not options.group:
        raise BadRequest(reason="--sequence and --last are for messages with --group")
    if options.last and not options.sequence:
        raise BadRequest(reason="--last is for messages with --sequence")
    if options.group and options.claim and options.sequence and len(options.words) > 2:
        raise BadRequest(reason="with --claim and --sequence, name one file")


def _check_claim(options: argparse.Namespace) -> None:
    if options.claim and (options.url or options.when_done
                          or STDIN in (options.words[1:] or [STDIN])):
        raise BadRequest(reason="--claim is for files on this host, named one by one, without -t, "
                         "--url or --when-done")


def _check_barrier(options: argparse.Namespace, message: omq.Outgoing) -> None:
    """What says when it may go is --within alone, and it is one message on one queue."""
    if options.within is not None and not options.when_done:
        raise BadRequest(reason="--within is for a message with --when-done")
    if options.when_done and (
            options.url or len(message.queues) > 1 or len(options.words) > 2
            or message.delay_s or message.expiry_s is not None or message.correlation_id
            or message.reply_to or message.unique_key or message.persistent is False
            or options.group):
        raise BadRequest(reason="with --when-done there is one message, on one queue of this host, "
                         "with a priority and properties alone")


def _outline(options: argparse.Namespace) -> omq.Outgoing:
    """All of the messages but their bodies, and the first file can be opened."""
    if not options.words:
        raise BadRequest(reason="no queue is named; see omsend --help")
    _check_group(options)
    found = omq.Outgoing(
        queues=tuple(check_queue_name(name) for name in options.words[0].split(",")),
        priority=options.priority,
        properties=_properties(options),
        persistent=options.persistent,
        correlation_id=_identifier(options.correlation_id, "correlation"),
        expiry_s=options.expiry,
        reply_to=options.reply_to,
        delay_s=options.defer,
        unique_key=options.unique_key,
        group_id=_identifier(options.group, "group"),
        group_sequence=options.sequence,
        last_in_group=options.last,
    )
    _check_barrier(options, found)
    _check_claim(options)
    if options.unique_key and len(options.words) > 2:
        raise BadRequest(reason="one key is for one message: name one file")
    first = (options.words[1:] or [STDIN])[0]
    if first != STDIN:
        _check_readable(first)
    return found


def _bodies(options: argparse.Namespace, connection: Client) -> Iterator[bytes]:
    """Each read when the one before it is put, and no further than the first queue takes it."""
    queue = str(options.words[0]).partition(",")[0]
    limit = connection.length_max(queue)
    for name in options.words[1:] or [STDIN]:
        yield _read(name, limit, queue)


def _mail(options: argparse.Namespace, settings: Settings) -> omq.Outgoing:
    _check_group(options)
    _check_mail(options)
    text = _read(STDIN, settings.smtp_message_bytes_max, ROUTER)
    mail = submission(text, options.words, options.sender, settings, Author(NAME, os.getuid()))
    return omq.Outgoing(
        body=mail.body,
        queues=(ROUTER,),
        priority=mail.priority if options.priority is None else options.priority,
        persistent=True,
        properties=_properties(options) | mail.envelope.properties(),
        correlation_id=_identifier(options.correlation_id, "correlation"),
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


def _check_readable(name: str) -> None:
    """A file can be opened. Others are not: whoever writes into a pipe would find it closed."""
    try:
        if stat.S_IFMT(os.stat(name).st_mode) in (stat.S_IFREG, stat.S_IFDIR):
            open(name, "rb").close()
    except OSError as error:
        raise InputUnreadable(file=name, reason=error.strerror or str(error)) from error


def _bounded(stream: BinaryIO, limit: int, queue: str) -> bytes:
    data = stream.read(limit + 1)
    if len(data) > limit:
        raise MessageTooLong(size=f"more than {limit}", queue=queue, limit=limit)
    return data


def _properties(options: argparse.Namespace) -> dict[str, Any]:
    """Those of --property, texts, and those of --json-property, as JSON has them."""
    found: dict[str, Any] = _texts(options.property)
    for name, text in _texts(options.json_property).items():
        try:
            value = json.loads(text, parse_constant=_no_number)
        except (ValueError, RecursionError) as error:
            raise BadProperty(name=name, rule=f"a value in JSON, which {text[:40]!r} is not: "
                              f"{error}") from error
        if not isinstance(value, str | int | float) or value in (math.inf, -math.inf):
            raise BadProperty(name=name, rule="a text, a number of 64 bits, true or false")
        found[name] = value
    return found


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is not a number of JSON")


def _texts(words: list[str]) -> dict[str, str]:
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


def _identifier(text: str, what: str) -> bytes:
    """48 hexadecimal digits are the id of another message, anything else is used as it is."""
    if len(text) == _MESSAGE_ID_DIGITS:
        return parse_message_id(text)
    identifier = text.encode("utf-8", "surrogateescape")
    if len(identifier) > limits.CORRELATION_ID_BYTES:
        rule = f"{_MESSAGE_ID_DIGITS} hexadecimal digits or at most {limits.CORRELATION_ID_BYTES}"
        raise BadRequest(reason=f"a {what} id is {rule} bytes of text")
    return identifier


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: 1 or more")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(
        NAME,
        "Put messages on queues and print their ids; with -t submit a mail.",
        """
        echo hello | omsend ORDERS
        omsend ORDERS,AUDIT --priority urgent --property customer=42 order.xml
        omsend ORDERS --correlation-id order-42 reply.xml
        omsend REPORTS report.txt --when-done "$FIRST" --when-done "$SECOND" --within 3600
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
    add_url(parser)
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
    parser.add_argument("--timeout", metavar="S", type=seconds,
                        help="wait at most this long for a queue manager that is away"
                        " (default: reconnect_grace_s)")
    group = parser.add_argument_group("message")
    group.add_argument("--priority", metavar="P", type=parse_priority,
                       help="0 to 9 (first), or urgent (7), normal (4), low (1)")
    group.add_argument("--property", metavar="NAME=VALUE", action="append", default=[],
                       help="a text; may be given several times")
    group.add_argument("--json-property", metavar="NAME=JSON", action="append", default=[],
                       help="a number, true, false or a text, as JSON writes it: readers get"
                       " it with that type")  # fmt: skip
    group.add_argument("--persistent", action="store_true", default=None,
                       help="survives every crash, whatever the queue's default is")
    group.add_argument("--non-persistent", dest="persistent", action="store_false",
                       help="gone when the queue manager stops, and faster")
    group.add_argument("--correlation-id", metavar="ID", default="",
                       help="id of another message, or up to 24 bytes of text")
    group.add_argument("--unique-key", metavar="KEY",
                       help="the message's id; a queue with dedupe_s takes it once in that time")
    group.add_argument("--reply-to", metavar="QUEUE", default="", help="queue on which replies "
                                                                       "are expected")
    group.add_argument("--group", metavar="ID", default="",
                       help="of one group: to one reader at a time, in order; an id is up to 24"
                       " bytes of text")  # fmt: skip
    group.add_argument("--sequence", metavar="N", type=_positive, default=0,
                       help="with --group: the message's number in it, from 1; further FILEs are"
                       " numbered on")  # fmt: skip
    group.add_argument("--last", action="store_true",
                       help="with --sequence: the last FILE is the last of the group")
    group.add_argument("--defer", metavar="S", type=seconds, default=0.0,
                       help="not handed out before S seconds have passed")
    group.add_argument("--when-done", metavar="ID", action="append", default=[],
                       help="not handed out before the message with this id is done; may be given "
                       "several times. If one of them fails too often, expires or is deleted, this "
                       "message goes to POISON or its queue's dead-letter queue")
    group.add_argument("--within", metavar="S", type=seconds,
                       help="with --when-done: the same if they are not done after S seconds")
    group.add_argument("--claim", action="store_true",
                       help="share the blocks of each FILE with the spool where the file system "
                       "can (XFS, Btrfs), instead of copying it; says which were copied")
    group.add_argument("--expiry", metavar="S", type=seconds,
                       help="expires after S seconds and leaves its queues")
