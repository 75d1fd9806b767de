"""omq units: the units of work in doubt; ended by hand when their program cannot.

    omq units                                  which there are, since when, and whose
    omq units --commit UNIT --reason 'booked'  commit: its puts take effect, what it took is done
    omq units --backout UNIT                   what it took is back, what it put is gone

UNIT is an id as it is listed, or the name that the program gave. The other half of the transaction
(a database, say) knows how it ended there: ask it first, for an end is final. It is journaled with
uid, pid, command and reason, and logged (OM 1274).

Errors: UnitUnknown, UnitResolved (somebody was quicker), NoAuthority, ManagerUnavailable.
"""

from __future__ import annotations

import argparse
import sys
from typing import Final

from omq.base.clock import NS_PER_S
from omq.base.errors import Exit
from omq.base.names import escape
from omq.cli.common import add_json, existing, print_json, tool_parser
from omq.cli.operate.change import connect
from omq.cli.operate.command_notes import add_reason
from omq.ipc.client.in_doubt import UnitInDoubt
from omq.ipc.client.operator import Operator

NAME: Final = "omq units"


def main(argv: list[str]) -> int:
    """The command; its exit code: 1 when there is no such unit."""
    options = _parser().parse_args(argv)
    location = existing(options)
    unit = options.commit or options.backout
    with connect(location, "omq") as connection:
        if not unit:
            _show(connection.units_in_doubt(), json_lines=options.json)
            return Exit.OK
        words = f"{NAME} --{'commit' if options.commit else 'backout'} {unit}"
        found = Operator(connection, words).end_unit(
            unit, commit=bool(options.commit), reason=options.reason)
    if options.json:
        print_json(found)
    else:
        sys.stdout.write(f"{found['unit']} is {found['how']}: {found['gets']} taken, "
                         f"{found['puts']} put\n")
    return Exit.OK


def _show(units: list[UnitInDoubt], *, json_lines: bool) -> None:
    write = sys.stdout.write
    for unit in units:
        if json_lines:
            print_json({
                "unit": unit.unit, "name": unit.name,
                "since_ns": int(unit.since.timestamp() * 1_000_000) * (NS_PER_S // 1_000_000),
                "uid": unit.uid, "pid": unit.pid, "program": unit.program, "gets": unit.gets,
                "puts": unit.puts, "missing": unit.missing, "queues": {
                    queue: {"gets": gets, "puts": puts}
                    for queue, (gets, puts) in unit.queues.items()}})
            continue
        whose = "whose it is, is lost" if unit.uid is None else (
            f"uid {unit.uid}, {escape(unit.program)}[{unit.pid}]")
        name = f"  {escape(unit.name)}" if unit.name else ""
        write(f"{unit.unit}{name}\n  since {unit.since:%Y-%m-%d %H:%M:%S}, {whose}"
              f"{f', {unit.missing} messages are missing' if unit.missing else ''}\n")
        for queue, (gets, puts) in unit.queues.items():
            write(f"  {queue:<24} {gets} taken, {puts} put\n")
    if not units and not json_lines:
        write("no unit of work is in doubt\n")


def _parser() -> argparse.ArgumentParser:
    found = tool_parser(NAME, "Show the units of work that are in doubt, and end them.", """
        omq units
        omq units --json
        omq units --commit ledger-4711 --reason 'committed in the database'
        omq units --backout 4f4d51314c0f...0000000000000012
        """)
    end = found.add_mutually_exclusive_group()
    end.add_argument("--commit", metavar="UNIT", default="",
                     help="commit: its puts take effect, what it took is done")
    end.add_argument("--backout", metavar="UNIT", default="",
                     help="back out: what it took returns to its place, its puts are discarded")
    add_reason(found)
    add_json(found)
    return found
