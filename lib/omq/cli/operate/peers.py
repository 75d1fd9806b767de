"""omq peers: the channels and peers of the mail gateways; peers tried, held and released by hand.

    omq peers                          channels, and peers with work or down
    omq peers --retry mx.example.org   it is not down any more, and its mail is ready
    omq peers --hold mx.example.org    nothing is sent there until it is released
    omq peers --hold smtp              the same for a channel

Of a peer that is down or held no Mlists are told: its mail is in nobody's hand, it waits on the
queue, deferred, and only a look at the queue could count it.

A NAME is a peer as it is listed (host:port), its host, or a channel. What is shown is what the
scheduler published (run/SERVICE.peers.now.json, once a second), what is down and held what it knows
(run/SERVICE.peers.json, SERVICE.held.json of the spool); nothing is asked of it. Errors:
UnknownPeer; those of omq flush for what waits.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from omq.base import clock
from omq.base.amounts import duration
from omq.base.config import load_settings
from omq.base.errors import Exit, NothingMeant, UnknownPeer
from omq.base.names import escape
from omq.base.services_conf import ServiceConf, load_services
from omq.cli.common import add_json, existing, print_json, tool_parser
from omq.cli.look.gateways import GATEWAY, states_of
from omq.cli.operate.noting import add_reason
from omq.services.channels.holds import Holds
from omq.services.channels.published import read_published
from omq.services.daemon.options import Location

NAME: Final = "omq peers"
_SHOWN: Final = 1000
_ASIDE: Final = frozenset(("down", "held"))


@dataclass(frozen=True, slots=True)
class PeerRow:
    """A peer: `state` is up, probing, down or held; `mlists`: in the scheduler's hands; times in
    seconds, `retry_s` from now."""

    service: str
    channel: str
    peer: str
    state: str
    mlists: int = 0
    active: int = 0
    mean_s: float = 0.0
    failures: int = 0
    retry_s: float = 0.0
    reason: str = ""


def main(argv: list[str]) -> int:
    """The command; its exit code."""
    options = _parser().parse_args(argv)
    location = existing(options)
    gateways = [each for each in load_services(location.conf_dir).values()
                if each.program == GATEWAY and each.queue]
    if not (options.retry or options.hold or options.release):
        for conf in gateways:
            _show(location, conf, json_lines=options.json)
        return Exit.OK
    for conf in gateways:
        holds = _holds(location, conf)
        known = {each.peer for each in peer_rows(location, conf)} | holds.names
        channels = {each["name"] for each in _published(location, conf)["channels"]} | {"smtp"}
        for name in options.names:
            meant = frozenset(each for each in known | channels
                              if name in (each, each.rpartition(":")[0]))
            if options.hold:
                holds.change(add=meant or frozenset((_new(name),)))
                continue
            if not meant:
                raise UnknownPeer(peer=escape(name))
            holds.change(remove=meant)
            states_of(location, conf).forget(meant)
            for each in sorted(meant):
                _ready(location, options, each, conf, whole=each in channels)
    return Exit.OK


def _ready(location: Location, options: argparse.Namespace, name: str, conf: ServiceConf, *,
           whole: bool) -> None:
    """What waits there is tried now; that nothing waits is no error."""
    from omq.cli.operate.flush import release_mail_of  # numpy: not for who only looks

    try:
        release_mail_of(location, conf.queue if whole else name, f"{NAME} {name}", options)
    except NothingMeant:
        sys.stdout.write(f"{name}: nothing waits\n")


def _new(name: str) -> str:
    """A peer of which nothing is known yet is named as it will be listed."""
    if ":" not in name:
        raise UnknownPeer(peer=escape(name))
    return name


def _holds(location: Location, conf: ServiceConf) -> Holds:
    return Holds(location.paths.held(conf.name))


def _published(location: Location, conf: ServiceConf) -> dict[str, Any]:
    return read_published(location.paths.run / f"{conf.name}.peers.now.json")


def peer_rows(location: Location, conf: ServiceConf) -> Iterator[PeerRow]:
    """Those with work, down or held."""
    held = _holds(location, conf).names
    down = states_of(location, conf).down
    now_ns = clock.wall_ns()
    for each in _published(location, conf)["peers"]:
        state = down.pop(each["peer"], None)
        row = PeerRow(conf.name, each["channel"], each["peer"], each["state"], each["mlists"],
                      each["active"], each["mean_s"])
        if state is not None:
            row = PeerRow(row.service, row.channel, row.peer, row.state, row.mlists, row.active,
                          row.mean_s, state.failures, 0.0, state.reason)
        yield row
    for name, state in sorted(down.items(), key=lambda item: item[1].retry_ns):
        left_s = max(0.0, (state.retry_ns - now_ns) / clock.NS_PER_S)
        yield PeerRow(conf.name, "", name, "held" if name in held else "down",
                      failures=state.failures, retry_s=round(left_s, 1), reason=state.reason)
    for name in sorted(held - down.keys()):
        yield PeerRow(conf.name, "", name, "held")


def _show(location: Location, conf: ServiceConf, *, json_lines: bool) -> None:
    found = _published(location, conf)
    most = load_settings(location.conf_dir).qmgr_maxchans
    if json_lines:
        for each in found["channels"]:
            print_json({"service": conf.name, "channel": each["name"]} | {
                key: each[key] for key in ("processes", "busy", "peers", "mlists", "held")})
        for row in peer_rows(location, conf):
            print_json(asdict(row))
        return
    write = sys.stdout.write
    processes = sum(each["processes"] for each in found["channels"])
    write(f"{conf.name}: {processes} of {most} processes, {found['in_hand']} messages in hand\n\n")
    write(f"{'channel':<10} {'processes':>9} {'busy':>5} {'peers':>6} {'mlists':>7}\n")
    for each in found["channels"]:
        write(f"{each['name']:<10} {each['processes']:>9} {each['busy']:>5} {each['peers']:>6} "
              f"{each['mlists']:>7}{'  held' if each['held'] else ''}\n")
    write(f"\n{'peer':<32} {'state':<8} {'mlists':>7} {'active':>6} {'mean s':>7} "
          f"{'next try':>9}\n")
    waits = False
    for number, row in enumerate(peer_rows(location, conf)):
        if number == _SHOWN:
            write("...\n")
            break
        due = duration(row.retry_s) if row.state == "down" else ""
        why = f"  {escape(row.reason)} ({row.failures})" if row.reason else ""
        aside = row.state in _ASIDE and not row.mlists
        waits |= aside
        write(f"{escape(row.peer):<32} {row.state:<8} {'-' if aside else row.mlists:>7} "
              f"{row.active:>6} {row.mean_s:>7.3f} {due:>9}{why}\n")
    if waits:
        write(f"\n-: what there is waits on {conf.queue}, deferred\n")


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(NAME, "Channels and peers of the mail gateways.", """
        omq peers
        omq peers --retry mx.example.org:25
        omq peers --hold mx.example.org:25 --reason 'they asked us to'
        """)
    doing = parser.add_mutually_exclusive_group()
    doing.add_argument("--retry", action="store_true", help="try it now, and what waits for it")
    doing.add_argument("--hold", action="store_true", help="send nothing there")
    doing.add_argument("--release", action="store_true", help="send again")
    parser.add_argument("names", nargs="*", metavar="NAME", help="a peer or a channel")
    add_reason(parser)
    add_json(parser)
    return parser
