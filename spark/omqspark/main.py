"""omq-spark: the journal archive on Spark. The same module runs under spark-submit.

Exit codes: 0; 1 when an audit finds what --fail-on names; 65 damaged or mixed archives; 66 no
archive; 69 no Java or no pyspark; 74 Spark failed, for instance because the disk is full.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import omq
from omq.base.errors import BadRequest, Exit

if TYPE_CHECKING:
    from omqtools.omqspark.lake import Lake

NAME = "omq-spark"
FAIL_ON = ("crc", "missing_file", "gap", "lost", "duplicated", "resurrected", "out_of_order",
           "attempts")


def main(argv: list[str] | None = None) -> int:
    """The command; its exit code."""
    options = _parser().parse_args(argv)
    if options.command == "generate":
        return _generate(options)
    from omqtools.omqspark.failures import told
    from omqtools.omqspark.lake import Lake
    from omqtools.omqspark.session import session

    spark = session()
    try:
        with told():
            code: int = _COMMANDS[options.command](Lake(spark, options.out), options)
        sys.stdout.flush()
        return code
    finally:
        spark.stop()


def _generate(options: argparse.Namespace) -> int:
    from omqtools.omqspark.generate import generate
    from omqtools.omqspark.generator import Load

    load = Load(seed=options.seed, rate=options.rate)
    truth = generate(options.to, options.messages, faults=options.faults, load=load,
                     file_frames=options.file_frames)
    _print({key: value for key, value in truth.items() if key != "faults"}
           | {"faults": len(truth["faults"])})
    return Exit.OK


def _run(lake: Lake, options: argparse.Namespace) -> int:
    from omqtools.omqspark import tables
    from omqtools.omqspark.pipeline import run

    with lake.alone():
        did = run(lake.spark, options.archive, options.out,
                  incremental=options.incremental or bool(options.again),
                  files_per_batch=options.files_per_batch, again=options.again)
        _print(did | {"removed_files": tables.vacuum(lake, options.keep_days)
                      if did["current"] >= 0 else 0})
    return Exit.OK


def _tables(lake: Lake, options: argparse.Namespace) -> int:
    """What there is: a line of JSON a table."""
    from omqtools.omqspark import tables

    said = tables.versions(lake)
    for name in [options.table] if options.table else said["versions"]:
        found = tables.table(lake, name, options.version)
        files = tables.files(found)
        _print({"table": name, "path": lake.path(name), "version": found.version(),
                "rows": sum(each.rows for each in files), "files": len(files),
                "bytes": sum(each.size for each in files), "batch": said["batch"]})
    return Exit.OK


def _audit(lake: Lake, options: argparse.Namespace) -> int:
    from omqtools.omqspark.audit import audit

    wanted = FAIL_ON if options.fail_on == "any" else tuple(
        word for word in options.fail_on.split(",") if word and word != "none")
    if set(wanted) - set(FAIL_ON):
        raise BadRequest(reason=f"--fail-on takes any, none, or of {', '.join(FAIL_ON)}")
    verdict = audit(lake, options.archive, pool=options.pool, attempts_max=options.attempts_max)
    lake.put("audit.json", (json.dumps(verdict, indent=1) + "\n").encode())
    _print({key: value for key, value in verdict.items() if key != "findings"})
    for finding in verdict["findings"]:
        sys.stderr.write(f"{NAME}: {json.dumps(finding)}\n")
    return Exit.NO if any(verdict["counts"][kind] for kind in wanted) else Exit.OK


def _state(lake: Lake, options: argparse.Namespace) -> int:
    from omqtools.omqspark.state import queue_names, state_at

    lsn, time_ns = at_instant(options.at)
    names = queue_names(lake)
    for row in state_at(lake, lsn=lsn, time_ns=time_ns).toLocalIterator():
        record = row.asDict()
        record["queue"] = names.get(row["queue"], str(row["queue"]))
        _print(record)
    return Exit.OK


def _biography(lake: Lake, options: argparse.Namespace) -> int:
    from omqtools.omqspark.state import biography, queue_names, told

    condition = f"qpool = {options.qpool}" if options.qpool is not None else options.where
    if not condition:
        raise BadRequest(reason="name a message by --qpool, or some by --where CONDITION")
    names, count = queue_names(lake), 0
    for row in biography(lake, condition).toLocalIterator():
        count += 1
        if options.json:
            _print({key: value for key, value in row.asDict().items() if key != "ts"})
        else:
            sys.stdout.write(f"{row['qpool']}  {told(row, names)}\n")
    return Exit.OK if count else Exit.NO


def _whatif(lake: Lake, options: argparse.Namespace) -> int:
    from omqtools.omqspark.lake import all_stays
    from omqtools.omqspark.state import queue_names
    from omqtools.omqspark.whatif import whatif

    names = queue_names(lake)
    numbers = {text.lower(): number for number, text in names.items()}
    readers = {}
    for word in options.readers:
        queue, _, count = word.partition("=")
        if queue.lower() not in numbers or not count.isdigit() or not int(count):
            raise BadRequest(reason=f"{word!r}: --readers takes QUEUE=NUMBER; queues: "
                                    f"{', '.join(sorted(numbers))}")
        readers[numbers[queue.lower()]] = int(count)
    span: dict[str, Any] = {}
    if options.day:
        start = datetime.fromisoformat(options.day).replace(tzinfo=UTC)
        span = {"from_ns": int(start.timestamp()) * 10**9,
                "to_ns": (int(start.timestamp()) + 86400) * 10**9}
    for row in whatif(all_stays(lake), readers, **span).collect():
        record = row.asDict() | {"queue": names.get(row["queue"], str(row["queue"]))}
        _print({key: round(value, 6) if isinstance(value, float) else value
                for key, value in record.items()})
    return Exit.OK


def _report(lake: Lake, options: argparse.Namespace) -> int:
    from omqtools.omqspark import plan
    from omqtools.omqspark.report import make

    fs, where = plan.filesystem(lake.path("audit.json"))
    verdict = None
    if lake.exists(lake.path("audit.json")):
        with fs.open_input_stream(where) as stream:
            verdict = json.loads(stream.read())
    directory, path = plan.filesystem(lake.path("report"))
    directory.create_dir(path)
    for name, data in make(lake, verdict).items():
        lake.put(f"report/{name}", data)
    sys.stdout.write(f"{lake.path('report')}/report.html\n")
    return Exit.OK


def _refresh(lake: Lake, options: argparse.Namespace) -> int:
    """What a timer does each hour: new files, the audit, the report."""
    _run(lake, options)
    code = _audit(lake, options)
    _report(lake, options)
    return code


_COMMANDS = {"run": _run, "refresh": _refresh, "audit": _audit, "state": _state,
             "tables": _tables, "biography": _biography, "whatif": _whatif, "report": _report}


def at_instant(text: str) -> tuple[int | None, int | None]:
    """(lsn, time in ns) of "--at": a number is an LSN, else an ISO time; UTC without a zone."""
    if re.fullmatch(r"[0-9]+", text):
        return int(text), None
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadRequest(reason=f"--at takes an LSN or a time like 2026-01-31T12:00, not {text!r}"
                         ) from error
    found = found if found.tzinfo else found.replace(tzinfo=UTC)
    return None, int(found.timestamp() * 1_000_000) * 1000


def _print(record: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(record) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=NAME, formatter_class=argparse.RawDescriptionHelpFormatter,
        description="The journal archive on Spark: tables, audit, time travel, what-if, report.",
        epilog="""examples:
  omq-spark generate --to /var/tmp/demo --messages 100000 --faults 2
  omq-spark run --archive /var/lib/omq/archive --out /srv/tables --incremental
  omq-spark run --archive /var/lib/omq/archive --out /srv/tables --again 42
  omq-spark audit --archive /var/lib/omq/archive --out /srv/tables --pool /var/lib/omq
  omq-spark refresh --archive /var/lib/omq/archive --out /srv/tables
  omq-spark state --out /srv/tables --at 2026-01-31T12:00
  omq-spark biography --out /srv/tables --qpool 42
  omq-spark whatif --out /srv/tables --readers router=3
  omq-spark report --out /srv/tables""")
    parser.add_argument("--version", action="version", version=f"{NAME} (omq) {omq.__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    made = commands.add_parser("generate", help="make an archive of synthetic traffic")
    made.add_argument("--to", type=Path, required=True, help="directory to make it in")
    made.add_argument("--messages", type=int, default=100_000, help="(default: %(default)s)")
    made.add_argument("--faults", type=int, default=0, help="how many of each kind to plant")
    made.add_argument("--seed", type=int, default=1, help="another seed, other traffic")
    made.add_argument("--rate", type=float, default=60.0, help="messages a second, on average")
    made.add_argument("--file-frames", type=int, default=400_000, help="frames of one file")
    for name, text in (("run", "make or continue the tables"),
                       ("audit", "account for all messages"),
                       ("refresh", "run --incremental, audit and report, as from a timer"),
                       ("tables", "which tables there are, their versions and rows"),
                       ("state", "what was on the queues at an instant"),
                       ("biography", "all that happened to a message"),
                       ("whatif", "waits with other numbers of readers"),
                       ("report", "write report.html and its pictures")):
        one = commands.add_parser(name, help=text)
        one.add_argument("--out", required=True, help="directory of the tables")
        _arguments(name, one)
    return parser


def _arguments(name: str, one: argparse.ArgumentParser) -> None:
    if name in ("run", "audit", "refresh"):
        one.add_argument("--archive", required=True, help="directory of the archive files")
    if name == "run":
        one.add_argument("--incremental", action="store_true", help="go on after the last run")
        one.add_argument("--again", default="", metavar="WHAT", help="read once more, after a "
                         "repair: a file (42), a day (2026-01-31) or a batch (batch:3)")
    elif name == "refresh":
        one.set_defaults(incremental=True, again="")
    if name in ("run", "refresh"):
        one.add_argument("--keep-days", type=float, default=7.0, metavar="DAYS",
                         help="how long earlier versions of the tables stay readable (%(default)g)")
        one.add_argument("--files-per-batch", type=int, default=200,
                         help="archive files that one batch reads (%(default)s)")
    if name in ("audit", "refresh"):
        one.add_argument("--pool", type=Path, help="spool whose pool holds what is still open")
        one.add_argument("--attempts-max", type=int, default=3,
                         help="attempts_max of the queues (%(default)s)")
        one.add_argument("--fail-on", default="any", help="any, none, or kinds by comma: "
                         f"{', '.join(FAIL_ON)}")
    elif name == "tables":
        one.add_argument("table", nargs="?", default="", help="one of them (default: all)")
        one.add_argument("--version", type=int, help="as it was at this version of its own")
    elif name == "state":
        one.add_argument("--at", required=True, help="an LSN, or a time (ISO, UTC)")
    elif name == "biography":
        one.add_argument("--qpool", type=int, help="QPoolId of one message")
        one.add_argument("--where", help="condition over the table messages")
        one.add_argument("--json", action="store_true", help="one JSON object a line")
    elif name == "whatif":
        one.add_argument("--readers", nargs="+", default=[], metavar="QUEUE=NUMBER",
                         help="how many readers a queue is to have")
        one.add_argument("--day", help="only messages that arrived on this day, 2026-01-31")


if __name__ == "__main__":  # spark-submit main.py COMMAND ...
    from omq.cli import launch

    sys.exit(launch.run(NAME, sys.argv[1:]))
