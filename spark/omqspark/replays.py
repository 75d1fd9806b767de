"""The commands whatif and advise: questions to the replay, their answers as lines of JSON."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from omq.base.errors import BadRequest, Exit
from omqtools.omqspark.instants import span
from omqtools.omqspark.options import NAME
from omqtools.omqspark.output_lines import line, say

if TYPE_CHECKING:
    from omqtools.omqspark.lake import Lake


def whatif_readers(lake: Lake, options: argparse.Namespace) -> int:
    from omqtools.omqspark.lake import all_stays
    from omqtools.omqspark.reader_presence import steps
    from omqtools.omqspark.report_tables import queue_names
    from omqtools.omqspark.whatif import whatif

    lake.look_back()
    names = queue_names(lake)
    numbers = {text.lower(): number for number, text in names.items()}
    readers = {}
    for word in options.readers:
        queue, _, count = word.partition("=")
        if queue.lower() not in numbers or not count.isdigit() or not int(count):
            raise BadRequest(reason=f"{word!r}: --readers takes QUEUE=NUMBER; queues: "
                                    f"{', '.join(sorted(numbers))}")
        readers[numbers[queue.lower()]] = int(count)
    return _told(whatif(all_stays(lake), readers, steps(lake), **span(options.day)), names)


def whatif_sends(options: argparse.Namespace) -> int:
    """Of the mail scheduler; no Spark: what it noted is bounded."""
    from omqtools.omqspark import sends, sends_replay

    changed = sends_replay.keys(options.rules)
    record = sends.read(options.sends, **span(options.day))
    for count, what in ((record.unreadable, "lines do not belong to a record"),
                        (record.missing, "sends could not be noted")):
        if count:
            say(f"{count} {what}: left out")
    refused = False
    for row in sends_replay.rows(record, changed):
        refused |= row["refused"]
        line(_rounded(row))
    if refused:
        say("no answer where the replay of what happened is over 20 % off (error_share)")
    return Exit.NO if refused else Exit.OK


def readers_for(lake: Lake, options: argparse.Namespace) -> int:
    from omqtools.omqspark.advise import advise
    from omqtools.omqspark.lake import all_stays
    from omqtools.omqspark.reader_presence import steps
    from omqtools.omqspark.report_tables import queue_names

    lake.look_back()
    return _told(advise(all_stays(lake), options.wait_s, steps(lake), **span(options.day)),
                 queue_names(lake))


def _told(rows: Any, names: dict[int, str]) -> int:
    """A line of JSON a row; NO when something was refused."""
    refused = set()
    for row in rows.collect():
        record = row.asDict() | {"queue": names.get(row["queue"], str(row["queue"]))}
        if "hour_ns" in record:
            at = datetime.fromtimestamp(record.pop("hour_ns") // 10**9, UTC)
            record = {"queue": record["queue"], "hour": at.isoformat()} | record
        if record["refused"]:
            refused.add((record["queue"], record["error_share"]))
        line(_rounded(record))
    for queue, share in sorted(refused):
        sys.stderr.write(f"{NAME}: {queue}: no answer, as the replay of what happened is "
                         f"{share:.0%} off\n")
    return Exit.NO if refused else Exit.OK


def _rounded(record: dict[str, Any]) -> dict[str, Any]:
    return {key: round(value, 6) if isinstance(value, float) else value
            for key, value in record.items()}
