"""omq peers: the channels and peers of the mail gateways; peers tried, held and released by hand.

    omq peers                             channels, and peers with work, with mail put off, or down
    omq peers --tls                       of each the last certificate, and why TLS failed
    omq peers --retry mx.example.org      it is not down any more, and its mail is ready
    omq peers --hold mx.example.org       nothing is sent there until it is released
    omq peers --hold smtp                 the same for a channel: smtp, lmtp, pipe, names
    omq peers --release mx.example.org    what was held goes again; where nothing is, nothing does

A NAME is a peer as it is listed (host:port), its host, or a channel. What is shown is what the
scheduler published (run/SERVICE.peers.now.json, once a second), what is down and held what it knows
(run/SERVICE.peers.json, SERVICE.held.json of the spool); nothing is asked of it. Mail that waits
for a peer is in the scheduler's hands (`mlists`), or put off: on the queue, deferred, for a reason.
What an earlier run of the gateway had put off for long is known to nobody but the queue, and
counted in the last line.

A release is seen by the scheduler within a second, which calls back what waits for it. Errors:
UnknownPeer; HoldsUnknown, and then all peers are shown as held; those of omq flush for what waits.

--tls: what the gateways noted of lines that TLS was wanted for (logs/unix.tls.jsonl and the file
before it) is read to its end; the last row of a host and port counts. What a peer says of itself is
shown escaped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from omq.base import clock
from omq.base.amounts import duration
from omq.base.config import load_settings
from omq.base.errors import Exit, HoldsUnknown, NothingMeant, OmqError, UnknownPeer
from omq.base.names import escape
from omq.base.services_conf import ServiceConf, load_services
from omq.cli.common import add_json, existing, print_json, say, tool_parser
from omq.cli.look.gateways import GATEWAY, states_of
from omq.cli.operate.command_notes import add_reason
from omq.services.daemon.options import Location
from omq.services.delivery.holds import Holds
from omq.services.delivery.scheduler_status import read_published
from omq.services.mail.channel_names import CHANNELS
from omq.services.mail.tls_sessions import Gaps, read_sessions

NAME: Final = "omq peers"
LOOKS: Final = 3
"""At what a release or retry finds."""
_SHOWN: Final = 1000


@dataclass(frozen=True, slots=True)
class PeerRow:
    """A peer: `state` is up, probing, down or held; `mlists`: in the scheduler's hands; `put_off`:
    on the queue, deferred, by `cause` (services.delivery.mlist.Cause). Times in seconds, `retry_s`
    (the peer) and `next_s` (the first message that was put off, at the latest) from now."""

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
    put_off: int = 0
    causes: dict[str, int] = field(default_factory=dict)
    next_s: float = 0.0


def main(argv: list[str]) -> int:
    """The command; its exit code."""
    options = _parser().parse_args(argv)
    location = existing(options)
    gateways = [each for each in load_services(location.conf_dir).values()
                if each.program == GATEWAY and each.queue]
    if not (options.retry or options.hold or options.release):
        for conf in gateways:
            if options.tls:
                show_tls(location, conf, json_lines=options.json)
                continue
            _show(location, conf, json_lines=options.json)
        return Exit.OK
    done = False
    for conf in gateways:
        for name in options.names:
            done |= _carry_out(location, options, name, conf)
    return Exit.OK if done else Exit.NO


def _carry_out(location: Location, options: argparse.Namespace, name: str, conf: ServiceConf
               ) -> bool:
    """Hold, release or retry one name; whether there was something to do."""
    holds = _holds(location, conf)
    held, unknown = holds.state
    if unknown:
        raise HoldsUnknown(path=holds.path, reason=unknown)
    known = {each.peer for each in peer_rows(location, conf)} | held | CHANNELS
    meant = frozenset(each for each in known if name in (each, each.rpartition(":")[0]))
    if options.hold:
        holds.change(add=meant or frozenset((_new(name),)))
        return True
    if not meant and (options.retry or ":" not in name):
        raise UnknownPeer(peer=escape(name))
    if options.release and not meant & held:
        sys.stdout.write(f"{escape(name)}: it is not held\n")
        return False
    if options.release:
        meant &= held
        holds.change(remove=meant)
    states_of(location, conf).forget(meant)
    for each in sorted(meant):
        _ready(location, options, each, conf)
    return True


def _ready(location: Location, options: argparse.Namespace, name: str, conf: ServiceConf) -> None:
    """What waits there is tried now; that nothing waits is not an error. The scheduler sees the end
    of a hold by itself, so that what was looked at may have changed: it is looked at anew."""
    from omq.cli.operate.flush import release_mail_of  # numpy: not for who only looks

    try:
        release_mail_of(location, name, f"{NAME} {name}", options,
                        channel=conf.queue if name in CHANNELS else "", looks=LOOKS)
    except NothingMeant:
        sys.stdout.write(f"{name}: nothing else waits\n" if options.release
                         else f"{name}: nothing waits\n")


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
    held, unknown = _holds(location, conf).state
    down = states_of(location, conf).down
    now_ns = clock.wall_ns()
    seen = set()
    for each in _published(location, conf)["peers"]:
        name, state = each["peer"], down.get(each["peer"])
        seen.add(name)
        row = PeerRow(conf.name, each["channel"], name, each["state"], each["mlists"],
                      each["active"], each["mean_s"])
        if state is not None:
            row = replace(row, failures=state.failures, reason=state.reason)
            if not row.mlists:
                row = replace(row, state="down", retry_s=_seconds(state.retry_ns, now_ns))
        if unknown or name in held or each["channel"] in held:
            row = replace(row, state="held")
        yield _with_put_off(row, each["put_off"], now_ns)
    for name, state in sorted(down.items(), key=lambda item: item[1].retry_ns):
        if name not in seen:
            yield PeerRow(conf.name, "", name, "held" if unknown or name in held else "down",
                          failures=state.failures, retry_s=_seconds(state.retry_ns, now_ns),
                          reason=state.reason)
    for name in sorted(held - down.keys() - seen - CHANNELS):
        yield PeerRow(conf.name, "", name, "held")


def _seconds(until_ns: int, now_ns: int) -> float:
    return round(max(0.0, (until_ns - now_ns) / clock.NS_PER_S), 1)


def _with_put_off(row: PeerRow, put_off: dict[str, Any], now_ns: int) -> PeerRow:
    """The reason is that of most of them."""
    if not put_off:
        return row
    most = max(put_off.values(), key=lambda each: each["messages"])
    first_ns = min(each["next_ns"] for each in put_off.values())
    causes = {cause: each["messages"] for cause, each in put_off.items()}
    return replace(row, reason=row.reason or most["reason"], put_off=sum(causes.values()),
                   causes=causes, next_s=_seconds(first_ns, now_ns))


def _show(location: Location, conf: ServiceConf, *, json_lines: bool) -> None:
    found = _published(location, conf)
    most = load_settings(location.conf_dir).qmgr_maxchans
    holds = _holds(location, conf)
    held, unknown = holds.state
    if unknown:
        say(NAME, str(HoldsUnknown(path=holds.path, reason=unknown)))
    if json_lines:
        for each in found["channels"]:
            print_json({"service": conf.name, "channel": each["name"]} | {
                key: each[key]
                for key in ("processes", "busy", "peers", "mlists", "held", "put_off")})
        for row in peer_rows(location, conf):
            print_json(asdict(row))
        return
    write = sys.stdout.write
    processes = sum(each["processes"] for each in found["channels"])
    write(f"{conf.name}: {processes} of {most} processes, {found['in_hand']} messages in hand\n\n")
    write(f"{'channel':<10} {'processes':>9} {'busy':>5} {'peers':>6} {'mlists':>7} "
          f"{'put off':>8}\n")
    for each in found["channels"]:
        write(f"{each['name']:<10} {each['processes']:>9} {each['busy']:>5} {each['peers']:>6} "
              f"{each['mlists']:>7} {each['put_off']:>8}{'  held' * each['held']}\n")
    for name in sorted(held & CHANNELS - {each["name"] for each in found["channels"]}):
        write(f"{name:<10} {0:>9} {0:>5} {0:>6} {0:>7} {0:>8}  held\n")
    write(f"\n{'peer':<32} {'state':<8} {'mlists':>7} {'put off':>8} {'active':>6} {'mean s':>7} "
          f"{'next':>9}\n")
    for number, row in enumerate(peer_rows(location, conf)):
        if number == _SHOWN:
            write("...\n")
            break
        next_s = row.retry_s if row.state == "down" else row.next_s
        due = duration(next_s or 0) if next_s or row.put_off else ""
        failed = f" ({row.failures})" if row.failures else ""
        why = f"  {escape(row.reason)}{failed}" if row.reason else ""
        write(f"{escape(row.peer):<32} {row.state:<8} {row.mlists:>7} {row.put_off:>8} "
              f"{row.active:>6} {row.mean_s:>7.3f} {due:>9}{why}\n")
    unknown = _deferred(location, conf.queue) - sum(
        each["put_off"] for each in found["channels"])
    if unknown > 0:
        write(f"\n{unknown} more on {conf.queue} were deferred before the gateway started, or by "
              "others: omqwhy has the message's peer\n")


def _deferred(location: Location, queue: str) -> int:
    """Messages that are deferred on a queue; 0 where that cannot be seen: the manager is off, or
    this user may not look, or numpy is not installed."""
    with suppress(ImportError, OmqError):
        from omq.core.index.view import IndexView

        with IndexView.attach(location.paths) as view:
            return sum(row.deferred for row in view.queues() if row.name == queue)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(NAME, "Channels and peers of the mail gateways.", """
        omq peers
        omq peers --tls
        omq peers --retry mx.example.org:25
        omq peers --hold mx.example.org:25 --reason 'they asked us to'
        """)
    doing = parser.add_mutually_exclusive_group()
    doing.add_argument("--tls", action="store_true", help="the last certificate of each peer, and "
                                                          "why TLS failed")
    doing.add_argument("--retry", action="store_true", help="retry it now, with everything that "
                                                            "waits for it")
    doing.add_argument("--hold", action="store_true", help="send nothing there")
    doing.add_argument("--release", action="store_true", help="send again")
    parser.add_argument("names", nargs="*", metavar="NAME", help="a peer or a channel")
    add_reason(parser)
    add_json(parser)
    return parser


def show_tls(location: Location, conf: ServiceConf, *, json_lines: bool) -> None:
    """A row a peer, the one that was spoken to last first."""
    gaps = Gaps()
    rows = last_of_peers(location, conf, gaps)
    if short := gaps.sentence():
        say("omq peers", f"a peer's last line may be missing: {short}")
    if json_lines:
        for row in rows:
            print_json(row)
        return
    write = sys.stdout.write
    write(f"{'peer':<32} {'last':<20} {'level':<8} {'TLS':<8} what came of it\n")
    for number, row in enumerate(rows):
        if number == _SHOWN:
            write("...\n")
            break
        when = datetime.fromtimestamp(row["time_ns"] / clock.NS_PER_S, UTC)
        said = f"{row['result']}: {row['reason']}" if row["result"] else "well"
        write(f"{escape(row['peer']):<32} {when:%Y-%m-%dT%H:%M:%SZ} {escape(row['level']):<8} "
              f"{escape(row['version']) or 'none':<8} {escape(said)}\n")
        seen = row["certificate"]
        if seen:
            write(f"    certificate {escape(seen.get('subject', '') or '(no name)')}, by "
                  f"{escape(seen.get('issuer', '') or '?')}, until {escape(seen.get('until', '?'))}"
                  f"\n    SHA-256 {escape(seen.get('sha256', '?'))}\n")


def last_of_peers(location: Location, conf: ServiceConf, gaps: Gaps | None = None
                  ) -> list[dict[str, Any]]:
    """As JSON has them."""
    last: dict[str, dict[str, Any]] = {}
    for row in read_sessions(location.paths.logs, conf.name, gaps):
        if row["host"]:
            peer = f"[{row['host']}]" if ":" in row["host"] else row["host"]
            peer = f"{peer}:{row['port']}"
            last.pop(peer, None)
            last[peer] = {"service": conf.name, "peer": peer} | {
                key: row[key] for key in ("time_ns", "level", "policy", "result", "reason",
                                          "version", "cipher", "certificate", "domains")}
    for row in last.values():
        row["certificate"] = {str(key): str(text) for key, text in row["certificate"].items()}
    return list(last.values())[::-1]
