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
MEMORY_LEAST_M = 64
"""With less DuckDB cannot tell a batch of whatever size, by one thread or two."""
COMMANDS = {
    "ask": ("print the SQL and Python that answer an operator's question",
            "Print the query, for DuckDB, Spark and pandas, that answers a question of operators."),
    "run": ("make the tables, or bring them up to date",
            "Make the tables from the files of the archive, or bring them up to date."),
    "audit": ("account for every message",
              "Account for every message of the tables; what is wrong or not known is listed."),
    "refresh": ("bring tables, audit and report up to date once, as a timer does",
                "Do run --incremental, audit and report, once."),
    "follow": ("keep them up to date until it is stopped",
               "Bring the tables up to date whenever files come, audit and draw the report now and"
               " then, until it is stopped: one process, meant for systemd (--unit)."),
    "tables": ("list the tables, or one of them in detail",
               "List the tables with version and rows, or one with its columns; or print views."),
    "state": ("what was on the queues at an instant",
              "Show what was on each queue at an instant of the past."),
    "biography": ("all that happened to a message",
                  "Show all that happened to a message, or to those of a condition."),
    "whatif": ("how long messages would have waited with other readers or rules",
               "Replay what arrived with other numbers of readers, or other rules of the mail"
               " scheduler, and compare the waits."),
    "advise": ("how many readers a wait that you want takes, by queue and hour",
               "Say how many readers each queue needs in each hour so that waits stay short."),
    "report": ("write report.html and its pictures", "Write report.html and its pictures."),
    "compact": ("merge small files and remove old versions",
                "Merge small files of the tables into large ones, and remove old versions."),
}
"""Each command: its line in the list, and the sentence above its own options."""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog=NAME, formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Analyse the journal archive: tables, audit, the past, what-if, a report.",
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
    for name, (text, more) in COMMANDS.items():
        one = commands.add_parser(name, help=text, description=more)
        if name == "ask":
            one.add_argument("question", nargs="?", default="",
                             help="its name; without one, the names are listed")
            continue
        one.add_argument("--out", required=name != "whatif", help="directory of the tables")
        _arguments(name, one)
    return top


def _arguments(name: str, one: argparse.ArgumentParser) -> None:
    if name in ("run", "audit", "refresh", "follow"):
        one.add_argument("--archive", required=True, help="directory of the archive files")
    if name == "run":
        one.add_argument("--incremental", action="store_true",
                         help="only files that came after the last run")
        one.add_argument("--again", default="", metavar="WHAT", help="read again what a "
                         "repair has changed: a file (42), a day (2026-01-31) or a batch (batch:3)")
    elif name in ("refresh", "follow"):
        one.set_defaults(incremental=True, again="")
    if name == "follow":
        _pace(one)
    if name in ("run", "refresh", "follow", "compact"):
        one.add_argument("--keep-days", type=float, default=7.0, metavar="DAYS",
                         help="how long earlier versions of the tables stay readable (default: "
                         "%(default)g)")
    if name in ("run", "refresh", "follow"):
        one.add_argument("--files-per-batch", type=int, default=200, metavar="FILES",
                         help="most files that one batch reads (default: %(default)s)")
    if name in ("run", "audit", "refresh", "follow"):
        _size(one)
    if name in ("audit", "refresh", "follow"):
        one.add_argument("--pool", type=Path, metavar="SPOOL",
                         help="count what is still open in this spool's pool, too")
        one.add_argument("--attempts-max", type=int, default=3,
                         metavar="NUMBER", help="attempts_max of the queues "
                         "(default: %(default)s)")
        one.add_argument("--fail-on", default="any", metavar="KINDS", help="findings that make "
                         "the exit code 1: any (default), none, or some, separated by commas: "
                         f"{', '.join(FAIL_ON)}")
    elif name == "tables":
        one.add_argument("table", nargs="?", default="", help="name of one (default: all)")
        one.add_argument("--version", type=int, metavar="NUMBER",
                         help="an earlier version of that table")
        one.add_argument("--columns", action="store_true",
                         help="its columns: name, type, unit and meaning")
        one.add_argument("--old-names", choices=("duckdb", "spark"), help="print SQL of "
                         "views that have the columns under their former names, too")
        one.add_argument("--views", choices=("duckdb", "spark"), help="print SQL of "
                         "views with all columns, also those that are not stored because they "
                         "follow from others")
    elif name == "state":
        one.add_argument("--at", required=True, help="an LSN, or a time in UTC: 2026-01-31T12:00")
    elif name == "biography":
        one.add_argument("--qpool", type=int, help="the QPoolId of a message")
        one.add_argument("--where", help="a condition in SQL on the columns of the table messages")
        one.add_argument("--json", action="store_true", help="print one JSON object a line")
    elif name == "whatif":
        one.add_argument("--readers", nargs="+", default=[], metavar="QUEUE=NUMBER",
                         help="how many readers the queue would have")
        one.add_argument("--sends", nargs="+", type=Path, default=[], metavar="FILE",
                         help="instead of --out: logs of what the mail scheduler sent "
                         "(logs/unix.sends.jsonl)")
        one.add_argument("--rules", nargs="+", default=[], metavar="KEY=NUMBER",
                         help="with --sends: other values for keys of [qmgr] in omq.conf")
    elif name == "advise":
        one.add_argument("--wait-s", type=float, required=True, metavar="SECONDS",
                         help="the longest wait of 95 of 100 messages")
    if name in ("whatif", "advise"):
        one.add_argument("--day", help="only messages that arrived on this day: 2026-01-31")


def _size(one: argparse.ArgumentParser) -> None:
    one.add_argument("--spark-from", type=int, metavar="EVENTS",
                     help="work on fewer events is done without Spark, by DuckDB (default: one for "
                     "each KiB of --memory, a million of 1g; 0: Spark always). More than that is "
                     "done in batches, and audited in steps")
    one.add_argument("--memory", type=_memory, metavar="SIZE", help="most memory, 512m or 4g: of "
                     "Spark's JVM (512m or more; default: 2g, for follow 1g) and of DuckDB (64m or "
                     "more; default: 1g)")


def _memory(text: str) -> str:
    if not re.fullmatch(r"[1-9][0-9]{0,5}[mg]", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size like 512m or 4g")
    if text[-1] == "m" and int(text[:-1]) < MEMORY_LEAST_M:
        raise argparse.ArgumentTypeError(
            f"{text} is too little for anything: give {MEMORY_LEAST_M}m or more")
    return text


def _pace(one: argparse.ArgumentParser) -> None:
    for word, default, text in (
            ("interval", 10.0, "how often it looks for new files"),
            ("audit", 3600.0, "how often it audits and draws the report, if files came"),
            ("idle", 1800.0, "end after this long without a file; systemd starts it again")):
        one.add_argument(f"--{word}-s", type=float, default=default, metavar="SECONDS",
                         help=f"{text} (default: %(default)g)")
    one.add_argument("--batches-max", type=int, default=2000, metavar="NUMBER",
                     help="end after this many batches, so that memory is given back (default: "
                     "%(default)s)")
    one.add_argument("--unit", action="store_true", help="print a unit for systemd and exit")


def one_of_two(options: argparse.Namespace) -> bool:
    """Whether whatif is asked about the mail scheduler, and not about readers. BadRequest: about
    both, or neither."""
    scheduler, readers = options.sends, options.out
    if bool(scheduler) == bool(readers) or (options.rules and not scheduler) \
            or (options.readers and not readers):
        raise BadRequest(reason="whatif takes --out TABLES with --readers (of queues), or --sends "
                                "FILES with --rules (of the mail scheduler)")
    return bool(scheduler)
