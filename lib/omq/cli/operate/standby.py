"""omq standby: a second copy of an instance on another host, which follows it and can take over.

    on the standby's host:
    omq standby init --member b -- tls://east.example.org        an empty spool becomes a standby
    omq standby init --member b -- ssh east omq standby send     the same, reached by a command;
                                a copy that was cut goes on
    omq standby follow                                           it follows, until a signal
    omq standby status                                           how far it is behind
    omq standby pause|resume                                     its pool stays as it is; goes on
    omq standby promote                                          it becomes the primary
    omq standby keep                      on all hosts: a lease in etcd decides who is primary

    on the primary's host:
    omq standby listen      serves standbys over TLS (omq-standby-listen.service)
    omq standby send        serves one standby on standard input and output; run by the command
    omq standby status      its standbys, how far each is behind, which are away
    omq standby forget --member b       it is no longer a standby
    omq standby demote      this spool is no longer a primary's: no queue manager starts on it
    omq standby rejoin --member a -- tls://west.example.org     an old primary follows the new one
    omq standby aside --since LSN       what it has that the new primary does not, by message
    omq standby put-again --from DIR --since LSN      on the new primary: what of that was not
                                finished is put once more

Unless standby_sync says otherwise the primary waits for nothing: what it acknowledged less than the
lag ago is lost with it. Who may run `omq standby send` as the spool's user may read every message
of it, and so may a standby.

`promote` first asks the primary, by the command that `init` was given, and refuses while it
answers. A primary that nobody can reach may still run: see to it that it does not.

In the middle of a crash: `init` leaves a directory without instance.json, which is not a spool, and
the next `init` goes on; `promote` is done again, or is done (core.standby.promotion).

Errors: those of services.standby; NotPrimary, SpoolLocked, PrimaryAnswers, BadRequest.
"""

from __future__ import annotations

import argparse
import shlex
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from omq.base import clock
from omq.base.config import load_settings
from omq.base.errors import BadArgument, BadRequest, Exit, PrimaryAnswers
from omq.base.paths import SpoolPaths
from omq.base.sizes import RULE, parse_size
from omq.cli.common import add_json, existing, say, tool_parser
from omq.cli.operate.command_notes import add_reason
from omq.services.daemon.options import Location, locate
from omq.services.daemon.signals import Signals
from omq.storage import durable, instance_file, spool
from omq.storage.files import write_new_file
from omq.storage.instance_file import UNNAMED, Instance, Role, is_member_name

NAME: Final = "omq standby"
PROGRESS_S: Final = 2.0
Do = Callable[[argparse.Namespace], int]


def main(argv: list[str]) -> int:
    """The command; its exit code."""
    own = argv.index("--") if "--" in argv else len(argv)
    options = _parser().parse_args(argv[:own])
    options.words = argv[own + 1 :]
    return _COMMANDS[options.command][0](options)


# the primary


def _send(options: argparse.Namespace) -> int:
    from omq.cli.operate.standby_serving import send

    return send(existing(options, tell_role=False), options.silence, NAME)


def _listen(options: argparse.Namespace) -> int:
    from omq.cli.operate.standby_serving import listen

    return listen(existing(options, tell_role=False))


def _demote(options: argparse.Namespace) -> int:
    location = existing(options, tell_role=False)
    info = spool.open_spool(location.paths.root, writer=True, any_role=True)
    if info.instance.role is Role.STANDBY:
        raise BadRequest(reason=f"{info.paths.root} is a standby already")
    held = spool.lock(info.paths.manager_lock, NAME)
    try:
        name = info.instance.member or options.member or UNNAMED
        instance_file.write(info.paths, replace(info.instance, role=Role.FORMER, member=name))
    finally:
        held.close()
    print(f"{info.paths.root} is a former primary: no queue manager starts on it")
    return Exit.OK


# the standby


def _init(options: argparse.Namespace) -> int:
    from omq.services.standby.dialling import parse
    from omq.services.standby.follower import make

    location = locate(options)
    paths = location.paths
    if not options.words:
        raise BadRequest(reason="give, after --, how the primary is reached, like 'omq standby "
                         "init --member b -- tls://east.example.org', or '... -- ssh east omq "
                         "standby send'")
    parse(options.words)
    if not is_member_name(options.member):
        raise BadArgument(argument="--member", value=options.member,
                          rule="a name of letters, digits, _ . -, 32 at most")
    goes_on = _is_unfinished(paths)
    if durable.status(paths.root) is not None and _holds_something(paths) and not goes_on:
        raise BadRequest(reason=f"{paths.root} is not empty, and a standby begins in an empty "
                         "directory")
    primary = shlex.join(options.words)
    told = 0.0

    def tell(copied: int, kept: int, lsn: int) -> None:
        nonlocal told
        if time.monotonic() >= told:
            told = time.monotonic() + PROGRESS_S
            here = f", {kept >> 20} MiB were here" if goes_on else ""
            say(NAME, f"{copied >> 20} MiB copied{here}, journal up to LSN {lsn}")

    made = make(location, Instance(bytes(16), 0, Role.STANDBY, options.member, primary),
                load_settings(location.conf_dir), options.words, tell, options.rate)
    print(f"{paths.root} is a standby of the instance {made.uuid.hex()}, member {made.member}; "
          "go on with: omq standby follow")
    return Exit.OK


def _is_unfinished(paths: SpoolPaths) -> bool:
    """A copy was cut in it."""
    from omq.services.standby.base_had import marker

    return durable.status(marker(paths)) is not None and durable.status(paths.uuid) is None


def _rate(text: str) -> int:
    found = parse_size(text)
    if found is None or found < 1:
        raise argparse.ArgumentTypeError(f"a second: {RULE}")
    return found


def _holds_something(paths: SpoolPaths) -> bool:
    """Anything but a configuration."""
    return any(name != paths.conf.name for name in durable.list_directory(paths.root))


def _follow(options: argparse.Namespace) -> int:
    from omq.services.standby.dialling import parse
    from omq.services.standby.follower import Follower

    location = existing(options, tell_role=False)
    info = _standby(location)
    instance = info.instance
    words = options.words or shlex.split(instance.primary)
    if options.words and shlex.join(words) != instance.primary:
        instance = replace(instance, primary=shlex.join(words))
    if not words:
        raise BadRequest(reason="give, after --, how the primary is reached")
    signals = Signals()
    signals.install()
    parse(words)
    follower = Follower(location, instance, load_settings(location.conf_dir), signals, words,
                        partial(say, NAME))
    if instance != info.instance:
        instance_file.write(info.paths, instance)
    try:
        follower.run()
    finally:
        follower.close()
    return Exit.OK


def _standby(location: Location) -> spool.SpoolInfo:
    info = spool.open_spool(location.paths.root, writer=True, any_role=True)
    if info.instance.role is not Role.STANDBY:
        raise BadRequest(reason=f"{info.paths.root} is not a standby, but a "
                         f"{info.instance.role.value}")
    return info


def _pause(options: argparse.Namespace) -> int:
    paths = _standby(existing(options, tell_role=False)).paths
    write_new_file(paths.standby_pause, [b"omq standby pause\n"]).close()
    print(f"{paths.root} redoes nothing from now on, and its journal grows, until: "
          "omq standby resume")
    return Exit.OK


def _resume(options: argparse.Namespace) -> int:
    paths = _standby(existing(options, tell_role=False)).paths
    if not durable.unlink(paths.standby_pause):
        raise BadRequest(reason=f"{paths.root} is not paused")
    print(f"{paths.root} redoes what came meanwhile")
    return Exit.OK


def _promote(options: argparse.Namespace) -> int:
    from omq.cli.operate.standby_lease import promote_by_lease
    from omq.core.standby.promotion import promote
    from omq.services.standby.ask_members import a_primary_answers

    location = existing(options, tell_role=False)
    info, settings = _standby(location), load_settings(location.conf_dir)
    with ExitStack() as held:
        for path in (info.paths.manager_lock, info.paths.pool_lock):
            held.callback(spool.lock(path, NAME).close)
        if settings.standby_lease:
            made = promote_by_lease(location, info.instance, settings, options.won,
                                    behind=options.behind)
            print(f"{info.paths.root} is the primary of term {made.term}: 'omq standby keep' "
                  "starts it")
            return Exit.OK
        if options.won is not None or options.behind:
            raise BadRequest(reason="--won and --behind are for a lease (standby_lease)")
        if a_primary_answers(shlex.split(info.instance.primary), info.instance, settings,
                             location.conf_dir):
            raise PrimaryAnswers(primary=info.instance.primary)
        made = promote(info.paths, info.instance, settings, clock.wall_ns())
    print(f"{info.paths.root} is the primary of term {made.term}: start it with omrc. "
          "On the old primary's host, before anything starts there: omq standby demote")
    return Exit.OK


def _keep(options: argparse.Namespace) -> int:
    from omq.cli.operate.standby_lease import keep

    return keep(existing(options, tell_role=False))


def _register(options: argparse.Namespace) -> int:
    from omq.cli.operate.standby_lease import register

    return register(existing(options, tell_role=False))


def _status(options: argparse.Namespace) -> int:
    from omq.cli.operate.standby_status import show

    return show(existing(options, tell_role=False), as_json=options.json)


def _aside(options: argparse.Namespace) -> int:
    from omq.cli.operate.standby_aside import show

    return show(existing(options, tell_role=False).paths, options.since, as_json=options.json)


def _put_again(options: argparse.Namespace) -> int:
    from omq.cli.operate.standby_put_again import put_again

    if options.source is None or options.since is None or options.since < 1:
        raise BadRequest(reason="say --from DIR, the spool of the former primary or what it put "
                         "aside, and --since LSN, as for 'omq standby aside'")
    return put_again(existing(options, tell_role=False), options.source, options.since,
                     options.reason, as_json=options.json)


def _rejoin(options: argparse.Namespace) -> int:
    from omq.cli.operate.standby_rejoin import rejoin

    return rejoin(existing(options, tell_role=False), options.words, options.member)


def _forget(options: argparse.Namespace) -> int:
    from omq.services.standby.lag import forget

    location = existing(options, tell_role=False)
    info = spool.open_spool(location.paths.root, writer=True)
    if not is_member_name(options.member) or not forget(info.paths, options.member):
        raise BadArgument(argument="--member", value=options.member,
                          rule="a standby that 'omq standby status' names")
    print(f"{options.member} is no longer a standby: no journal file is kept for it. It needs a "
          "new 'omq standby init' to be one again")
    return Exit.OK


_COMMANDS: Final[dict[str, tuple[Do, str]]] = {
    "init": (_init, "make an empty directory a standby, or go on where that was cut"),
    "follow": (_follow, "follow the primary until a signal"),
    "status": (_status, "role and lag of this member, and of a primary its standbys"),
    "pause": (_pause, "on a standby: receive and redo nothing, until resume"),
    "resume": (_resume, "on a standby: redo what arrived in the meantime"),
    "promote": (_promote, "this standby becomes the primary"),
    "keep": (_keep, "by a lease in etcd: run what this member is, until a signal"),
    "register": (_register, "on the primary: tell etcd that its term counts"),
    "send": (_send, "on the primary: serve a standby on standard input and output"),
    "listen": (_listen, "on the primary: serve standbys over TLS, until a signal"),
    "aside": (_aside, "on a former primary: what it has that the new one does not, by message"),
    "put-again": (_put_again, "on the primary: what a former one alone has and had not finished"),
    "forget": (_forget, "on the primary: drop a standby, and keep nothing for it"),
    "rejoin": (_rejoin, "on an old primary: follow the one that was promoted, without a copy"),
    "demote": (_demote, "on an old primary: no queue manager may start here again"),
}


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(NAME, "A copy of an instance on another host, which can take over. "
                         "After -- comes the way to the primary: tls://HOST[:PORT] of its 'omq "
                         "standby listen', or a command that runs 'omq standby send'.", """
        omq standby init --member b -- tls://east.example.org
        omq standby init --member b -- ssh east omq standby send
        omq standby follow
        omq standby status --json
        omq standby promote
        omq standby demote
        omq standby rejoin --member a -- tls://west.example.org
        omq standby put-again --from /var/lib/omq/aside/0-12345 --since 12345
        """)
    words = ", ".join(f"{name} ({text})" for name, (_do, text) in _COMMANDS.items())
    parser.add_argument("command", choices=tuple(_COMMANDS), metavar="COMMAND", help=words)
    parser.add_argument("--member", default="", metavar="NAME",
                        help="with init and rejoin: the name of this standby; with forget: the "
                             "one to forget")
    parser.add_argument("--rate", type=_rate, default=0, metavar="BYTES",
                        help="with init: take at most this many bytes a second, like 20M")
    parser.add_argument("--silence", type=float, metavar="SECONDS",
                        help="with send: instead of standby_silence_s")
    parser.add_argument("--from", dest="source", type=Path, metavar="DIR",
                        help="with put-again: the spool of the former primary, or what it has put "
                             "aside; it is read only")
    add_reason(parser)
    parser.add_argument("--since", type=int, metavar="LSN",
                        help="with aside and put-again: up to where the new primary has the "
                             "same, as 'omq standby status' there says")
    parser.add_argument("--behind", action="store_true",
                        help="with promote, where a lease decides: also a standby that may lack "
                             "what was acknowledged")
    parser.add_argument("--won", type=int, metavar="TERM", help=argparse.SUPPRESS)
    add_json(parser)
    return parser
