"""omq-spark: the journal archive on Spark. The same module runs under spark-submit.

Exit codes: 0; 1 when an audit finds what --fail-on names; 65 damaged or mixed archives; 66 no
archive; 69 no Java or no pyspark; 74 Spark failed, for instance because the disk is full.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import suppress
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING

from omq.base.errors import BadRequest, Exit
from omqtools.omqspark.instants import at_instant
from omqtools.omqspark.options import FAIL_ON, NAME, one_of_two, parser
from omqtools.omqspark.output_lines import line, say

if TYPE_CHECKING:
    from omqtools.omqspark.lake import Lake
    from omqtools.omqspark.out_directory import Out
    from omqtools.omqspark.report import Drawn


def main(argv: list[str] | None = None) -> int:
    """The command; its exit code."""
    options = parser().parse_args(argv)
    if options.command == "ask":
        from omqtools.omqspark.ask import asked

        sys.stdout.write(asked(options.question))
        return Exit.OK
    if options.command == "whatif" and one_of_two(options):
        from omqtools.omqspark.replays import whatif_sends

        return whatif_sends(options)
    if options.command == "follow":
        from omqtools.omqspark.following import command

        return command(options, _run, _audit_and_report)
    from omqtools.omqspark.failures import quiet, told

    if options.command in _PLAIN:
        from omqtools.omqspark.out_directory import Out

        with told():
            return _PLAIN[options.command](Out(options.out), options)
    with quiet():
        return _with_spark(options)


def _with_spark(options: argparse.Namespace) -> int:
    from omqtools.omqspark.archive_holds import while_it_runs
    from omqtools.omqspark.failures import told
    from omqtools.omqspark.jvm_classes import class_archive
    from omqtools.omqspark.lake import Lake
    from omqtools.omqspark.session import Later, end, session

    whole = options.command == "run" and not (options.incremental or options.again)
    if options.command == "refresh":  # while the JVM starts, its other half is read
        Thread(target=_read_ahead, daemon=True).start()
    classes, memory = class_archive(), getattr(options, "memory", None)
    later = Later(lambda: session(
        {"spark.driver.memory": memory} if memory else None, quick=not whole, classes=classes,
        keep_classes=options.command == "refresh", source=False),
        getattr(options, "spark_from", 0), memory or "1g")
    try:
        with told(), while_it_runs(getattr(options, "archive", None)):
            code: int = _COMMANDS[options.command](Lake(later, options.out), options)
        sys.stdout.flush()
        return code
    finally:
        gateway = later.spark.sparkContext._gateway if later.made else None
        if later.made:
            end(later.spark)
        if classes is not None and gateway is not None:
            classes.end(gateway)


def _run(lake: Lake, options: argparse.Namespace) -> int:
    from omqtools.omqspark import tables
    from omqtools.omqspark.pipeline import run

    with lake.alone():
        did = run(lake.engine, options.archive, options.out,
                  incremental=options.incremental or bool(options.again),
                  files_per_batch=options.files_per_batch, again=options.again, say=say)
        line(did | {"removed_files": tables.vacuum(lake, options.keep_days)
                      if did["current"] >= 0 else 0})
    return Exit.OK


def _tables(lake: Out, options: argparse.Namespace) -> int:
    """What there is: a line of JSON a table, or a column."""
    import pyarrow as pa

    from omqtools.omqspark import derived, dictionary, tables, views

    if options.old_names:
        sys.stdout.write(views.old_names(options.old_names))
        return Exit.OK
    if options.views:
        sys.stdout.write(views.statements(options.views))
        return Exit.OK
    said = tables.versions(lake)
    for name in [options.table] if options.table else said["versions"]:
        found = tables.table(lake, name, options.version)
        if options.columns:
            stored = pa.schema(found.schema().to_arrow())
            for field in [*stored, *derived.fields(name)]:
                line({"table": name, "column": field.name, "type": dictionary.word(field.type),
                      "stored": field.name in stored.names,
                      "meaning": dictionary.meaning(name, field.name)})
            continue
        files = tables.files(found)
        line({"table": name, "path": lake.path(name), "version": found.version(),
                "rows": sum(each.rows for each in files), "files": len(files),
                "bytes": sum(each.size for each in files), "batch": said["batch"]})
    return Exit.OK


def _audit(lake: Lake, options: argparse.Namespace) -> int:
    from omqtools.omqspark.audit import audit
    from omqtools.omqspark.out_directory import AUDIT

    wanted = FAIL_ON if options.fail_on == "any" else tuple(
        word for word in options.fail_on.split(",") if word and word != "none")
    if set(wanted) - set(FAIL_ON):
        raise BadRequest(reason=f"--fail-on takes any, none, or of {', '.join(FAIL_ON)}")
    verdict = audit(lake, options.archive, pool=options.pool,
                    attempts_max=options.attempts_max, say=say)
    lake.put(AUDIT, (json.dumps(verdict, indent=1) + "\n").encode())
    line({key: value for key, value in verdict.items() if key != "findings"})
    for finding in verdict["findings"]:
        sys.stderr.write(f"{NAME}: {json.dumps(finding)}\n")
    return Exit.NO if any(verdict["counts"][kind] for kind in wanted) else Exit.OK


def _state(lake: Lake, options: argparse.Namespace) -> int:
    from omqtools.omqspark.report_tables import queue_names
    from omqtools.omqspark.state import state_at

    lake.look_back()
    lsn, time_ns = at_instant(options.at)
    names = queue_names(lake)
    for row in state_at(lake, lsn=lsn, time_ns=time_ns).toLocalIterator():
        record = row.asDict()
        record["queue"] = names.get(row["queue"], str(row["queue"]))
        line(record)
    return Exit.OK


def _biography(lake: Lake, options: argparse.Namespace) -> int:
    from omqtools.omqspark.report_tables import queue_names
    from omqtools.omqspark.state import biography, told

    lake.look_back()
    condition = f"qpool = {options.qpool}" if options.qpool is not None else options.where
    if not condition:
        raise BadRequest(reason="name a message by --qpool, or some by --where CONDITION")
    names, count = queue_names(lake), 0
    for row in biography(lake, condition).toLocalIterator():
        count += 1
        if options.json:
            line({key: value for key, value in row.asDict().items() if key != "ts"})
        else:
            sys.stdout.write(f"{row['qpool']}  {told(row, names)}\n")
    return Exit.OK if count else Exit.NO


def _read_ahead() -> None:
    with suppress(ImportError):  # whoever needs it gets an error that names it
        import_module("omqtools.omqspark.report")


def _report(lake: Out, options: argparse.Namespace, ready: Drawn | None = None) -> int:
    from omqtools.omqspark import plan
    from omqtools.omqspark.out_directory import AUDIT
    from omqtools.omqspark.report import make

    lake.known()  # before anything is made there
    data = lake.get(AUDIT)
    verdict = None if data is None else json.loads(data)
    directory, path = plan.filesystem(lake.path("report"))
    directory.create_dir(path)
    for name, data in make(lake, verdict, ready).items():
        lake.put(f"report/{name}", data)
    sys.stdout.write(f"{lake.path('report')}/report.html\n")
    return Exit.OK


def _compact(lake: Out, options: argparse.Namespace) -> int:
    from omqtools.omqspark.compact import compact

    lake.known()
    with lake.alone():
        line(compact(lake, options.keep_days))
    return Exit.OK


def _refresh(lake: Lake, options: argparse.Namespace) -> int:
    """What a timer does each hour: new files; then the audit, by the JVM, while Python draws."""
    _run(lake, options)
    return _audit_and_report(lake, options)


def _audit_and_report(lake: Lake, options: argparse.Namespace) -> int:
    from concurrent.futures import ThreadPoolExecutor

    from omqtools.omqspark.out_directory import Out
    from omqtools.omqspark.report import drawn

    with ThreadPoolExecutor(1) as beside:
        pictures = beside.submit(drawn, Out(options.out))
        code = _audit(lake, options)
        _report(lake, options, pictures.result())
    return code


_PLAIN = {"tables": _tables, "report": _report, "compact": _compact}  # no Spark is needed for them
def _whatif(lake: Lake, options: argparse.Namespace) -> int:
    from omqtools.omqspark import replays

    return replays.whatif_readers(lake, options)


def _advise(lake: Lake, options: argparse.Namespace) -> int:
    from omqtools.omqspark import replays

    return replays.readers_for(lake, options)


_COMMANDS = {"run": _run, "refresh": _refresh, "audit": _audit, "state": _state,
             "biography": _biography, "whatif": _whatif, "advise": _advise}


if __name__ == "__main__":  # spark-submit main.py COMMAND ...
    from omq.cli import launch

    sys.exit(launch.run(NAME, sys.argv[1:]))
