"""The arguments of omq-spark."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import omq
from omq.base.errors import BadRequest

NAME = "omq-spark"
FAIL_ON = ("crc", "replaced", "missing_file", "gap", "lost", "duplicated", "resurrected",
           "out_of_order", "attempts")


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog=NAME, formatter_class=argparse.RawDescriptionHelpFormatter,
        description="The journal archive on Spark: tables, audit, time travel, what-if, report.",
        epilog="""examples:
  omq-spark run --archive /var/lib/omq/archive --out /srv/tables --incremental
  omq-spark run --archive /var/lib/omq/archive --out /srv/tables --again 42
  omq-spark audit --archive /var/lib/omq/archive --out /srv/tables --pool /var/lib/omq
  omq-spark refresh --archive /var/lib/omq/archive --out /srv/tables
  omq-spark follow --archive /var/lib/omq/archive --out /srv/tables
  omq-spark state --out /srv/tables --at 2026-01-31T12:00
  omq-spark biography --out /srv/tables --qpool 42
  omq-spark whatif --out /srv/tables --readers router=3
  omq-spark whatif --sends /var/spool/omq/logs/unix.sends.jsonl --rules qmgr_peer_concurrency=8
  omq-spark advise --out /srv/tables --wait-s 5
  omq-spark ask waits
  omq-spark report --out /srv/tables
  omq-spark compact --out /srv/tables --keep-days 30""")
    top.add_argument("--version", action="version", version=f"{NAME} (omq) {omq.__version__}")
    commands = top.add_subparsers(dest="command", required=True)
    question = commands.add_parser("ask", help="SQL and Python for what operators ask")
    question.add_argument("question", nargs="?", default="", help="its name (default: all names)")
    for name, text in (("run", "make or continue the tables"),
                       ("audit", "account for all messages"),
                       ("refresh", "run --incremental, audit and report, as from a timer"),
                       ("follow", "the same as files come, until it is stopped"),
                       ("tables", "which tables there are, their versions and rows"),
                       ("state", "what was on the queues at an instant"),
                       ("biography", "all that happened to a message"),
                       ("whatif", "waits with other numbers of readers, or other rules"),
                       ("advise", "readers for a wished wait, by queue and hour"),
                       ("report", "write report.html and its pictures"),
                       ("compact", "few large files for many small ones; remove old versions")):
        one = commands.add_parser(name, help=text)
        one.add_argument("--out", required=name != "whatif", help="directory of the tables")
        _arguments(name, one)
    return top


def _arguments(name: str, one: argparse.ArgumentParser) -> None:
    if name in ("run", "audit", "refresh", "follow"):
        one.add_argument("--archive", required=True, help="directory of the archive files")
    if name == "run":
        one.add_argument("--incremental", action="store_true", help="go on after the last run")
        one.add_argument("--again", default="", metavar="WHAT", help="read once more, after a "
                         "repair: a file (42), a day (2026-01-31) or a batch (batch:3)")
    elif name in ("refresh", "follow"):
        one.set_defaults(incremental=True, again="")
    if name == "follow":
        _pace(one)
    if name in ("run", "refresh", "follow", "compact"):
        one.add_argument("--keep-days", type=float, default=7.0, metavar="DAYS",
                         help="how long earlier versions of the tables stay readable (%(default)g)")
    if name in ("run", "refresh", "follow"):
        one.add_argument("--files-per-batch", type=int, default=200,
                         help="archive files that one batch reads (%(default)s)")
    if name in ("run", "audit", "refresh", "follow"):
        _size(one)
    if name in ("audit", "refresh", "follow"):
        one.add_argument("--pool", type=Path, help="spool whose pool holds what is still open")
        one.add_argument("--attempts-max", type=int, default=3,
                         help="attempts_max of the queues (%(default)s)")
        one.add_argument("--fail-on", default="any", help="any, none, or kinds by comma: "
                         f"{', '.join(FAIL_ON)}")
    elif name == "tables":
        one.add_argument("table", nargs="?", default="", help="one of them (default: all)")
        one.add_argument("--version", type=int, help="as it was at this version of its own")
        one.add_argument("--columns", action="store_true",
                         help="the columns: name, type, unit and meaning")
        one.add_argument("--old-names", choices=("duckdb", "spark"), help="SQL of views in which "
                         "columns have their names of before, too")
        one.add_argument("--views", choices=("duckdb", "spark"), help="SQL of views with all "
                         "columns: those that are stored, and those that follow from them")
    elif name == "state":
        one.add_argument("--at", required=True, help="an LSN, or a time (ISO, UTC)")
    elif name == "biography":
        one.add_argument("--qpool", type=int, help="QPoolId of one message")
        one.add_argument("--where", help="condition over the table messages")
        one.add_argument("--json", action="store_true", help="one JSON object a line")
    elif name == "whatif":
        one.add_argument("--readers", nargs="+", default=[], metavar="QUEUE=NUMBER",
                         help="how many readers a queue is to have")
        one.add_argument("--sends", nargs="+", type=Path, default=[], metavar="FILE",
                         help="instead of --out: what the mail scheduler noted of its sends")
        one.add_argument("--rules", nargs="+", default=[], metavar="KEY=NUMBER",
                         help="with --sends: other values of keys of [qmgr] in omq.conf")
    elif name == "advise":
        one.add_argument("--wait-s", type=float, required=True, metavar="SECONDS",
                         help="what 95 of 100 messages shall wait at most")
    if name in ("whatif", "advise"):
        one.add_argument("--day", help="only messages that arrived on this day, 2026-01-31")


def _size(one: argparse.ArgumentParser) -> None:
    one.add_argument("--spark-from", type=int, metavar="EVENTS",
                     help="what looks at fewer is done without Spark (default: one for each KiB of "
                     "--memory, so a million of 1g; 0: never)")
    one.add_argument("--memory", type=_memory, metavar="SIZE", help="512m or 4g: of the JVM's heap "
                     "(default: 2g, of follow 1g), and of what is done without it (1g)")


def _memory(text: str) -> str:
    if not re.fullmatch(r"[1-9][0-9]{0,5}[mg]", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no size like 512m or 4g")
    return text


def _pace(one: argparse.ArgumentParser) -> None:
    for word, default, text in (
            ("interval", 10.0, "how often the archive is looked at"),
            ("audit", 3600.0, "how often the audit is made and the report drawn, if files came"),
            ("idle", 1800.0, "end when no file came for so long; systemd starts it again")):
        one.add_argument(f"--{word}-s", type=float, default=default, metavar="SECONDS",
                         help=f"{text} (%(default)g)")
    one.add_argument("--batches-max", type=int, default=2000, help="end after so many, so that "
                     "memory is given back (%(default)s)")
    one.add_argument("--unit", action="store_true", help="print a unit for systemd, and end")


def one_of_two(options: argparse.Namespace) -> bool:
    """Whether whatif is asked about the mail scheduler, and not about readers. BadRequest: about
    both, or neither."""
    scheduler, readers = options.sends, options.out
    if bool(scheduler) == bool(readers) or (options.rules and not scheduler) \
            or (options.readers and not readers):
        raise BadRequest(reason="whatif takes --out TABLES with --readers (of queues), or --sends "
                                "FILES with --rules (of the mail scheduler)")
    return bool(scheduler)
