"""What each column of each table of the data source and of OUT means, and in which unit: words
only, said once; dictionary.py uses them. Numbers of frames, flags and reasons come from the
format's own tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final

from omq.format.frame_rules import Reason
from omq.format.journal import FrameFlag, FrameType
from omqtools.omqspark.buckets import ERROR


@dataclass(frozen=True)
class Meaning:
    """A table: what a row of it is, and what its columns are, besides those of EVERYWHERE."""

    row: str
    columns: Mapping[str, str]


def _numbered(kinds: Iterable[IntEnum | IntFlag]) -> str:
    return ", ".join(f"{int(kind)} {kind.name}" for kind in kinds)


EVERYWHERE: Final = {
    "qpool": "QPoolId: which message",
    "queue": "number of the queue",
    "queue_name": "name that the queue had last when the row was made",
    "batch": "the run whose files the row is in",
    "day": "day (UTC) by which the table is apart",
    "bad": "null, or what is wrong (JSON: path, offset, length, kind, reason); most of the rest is "
           "null then",
    "file": "number of the archive file",
    "epoch": "epoch of the manager: one per start",
    "reader": "client id of the reader",
    "reader_pid": "process of the reader",
    "reader_name": "name of the reader, as its program gave it; null: it gave none",
    "producer_name": "program that put the message, as it called itself; null: it gave none",
    "producer_pid": "process that put the message",
    "producer_uid": "user that put the message",
    "size_class": "bytes: the next power of two, 1024 holds 513 to 1024; 0: no body",
}

SOURCE: Final[dict[str, Meaning]] = {
    "events": Meaning("a frame of the journal, as FORMATS describes it; also `bronze`", {
        "lsn": "log sequence number: the order of everything",
        "time_ns": "wall clock, ns",
        "ts": "the same in microseconds",
        "type": f"FrameType: {_numbered(FrameType)}",
        "flags": f"bits: {_numbered(FrameFlag)}",
        "queue": "number of the queue; its name is in `dict`",
        "priority": "0 to 9, 9 first",
        "attempt": "failed attempts; in GIVE with this one",
        "qpool": "QPoolId: which message; 0 = none",
        "size": "bytes of the body",
        "client": "client id in its epoch",
        "pid": "process of the client",
        "uid": "user of that process",
        "lease": "LSN of the GIVE that is answered; PUT: hash of a given message id",
        "token": "hash, the 64 bits as a signed number",
        "sequence": "number of the client's request",
        "correlation": "hash of the correlation id, the 64 bits as a signed number",
        "argument": "DEFER: until, ns",
        "unit": "LSN of the first frame of its unit of work; 0 = alone",
        "reason": f"of frames that have one: {_numbered(Reason)}",
        "target": "POISON: queue that it went to",
        "length": "bytes of the payload",
        "onto": "queues that a PUT or MOVE names in its payload; null = none",
        "onto_priority": "priority on each of them",
        "until_s": "not handed out there before, unix seconds; 0 = at once",
        "group_id": "PUT: group of the message, as programs see it; null = none",
        "group_sequence": "number in the group, 0 = none; null = no group",
        "group_last": "whether it is the last of its group; null = no group",
    }),
    "blocks": Meaning("a sealed block of frames in an archive file", {
        "block": "its number in the file",
        "count": "frames in it",
        "first_lsn": "lowest LSN in it",
        "last_lsn": "highest LSN in it",
        "time_min_ns": "earliest time in it, ns",
        "time_max_ns": "latest time in it, ns",
        "follows_lsn": "last LSN before the file",
    }),
    "dict": Meaning("a name or a text that a frame carries; also `names`", {
        "kind": "queue, reader, program, or text: reason, evidence or order of the frame `lsn`",
        "key": "queue: its number; reader, program: client id; text: FrameType",
        "lsn": "of the frame that says so",
        "text": "the name or text",
    }),
}

_ABOUT: Final = f"; at most {ERROR:.1%} of it off"
_BUCKETS: Final = ("by buckets: `n` of them are in that of the middle `value_ns`, ns; sum `n` by "
                   "`value_ns` to merge some")


def _times(name: str, what: str, those: str) -> dict[str, str]:
    """The columns of a distribution. `those`: what 90 of 100 did not exceed."""
    return {f"{name}_buckets": f"{those}s {_BUCKETS}", f"{name}s": f"how many {those}s there are",
            f"{name}_p50_s": f"median {what}, seconds{_ABOUT}"} | {
        f"{name}_p{n}_s": f"{what} that {n} of 100 did not exceed, seconds{_ABOUT}"
        for n in (90, 95, 99)}


MEANINGS: Final[dict[str, Meaning]] = {
    **SOURCE,
    "messages": Meaning("a message", {
        "born_lsn": "LSN of the PUT",
        "born_ns": "time of the PUT, ns",
        "producer": "client that put it",
        "size": "bytes of the body",
        "priority": "as put, 0 to 9",
        "correlation": "as put: hash of the correlation id",
        "persistent": "as put: it survives the death of its manager",
        "group_id": "as put; null = no group, or archived before archives knew of groups",
        "group_sequence": "number in the group, 0 = none; null = no group",
        "group_last": "whether it is the last of its group; null = no group",
        "puts": "births: 1 in a sound archive",
        "gives": "hand-outs to readers",
        "moves": "moves to other queues",
        "defers": "times that it was deferred",
        "failed": "failed attempts",
        "poisoned": "times that it went to POISON or a dead-letter queue",
        "attempts_max": "highest number of an attempt",
        "first_give_ns": "first hand-out, ns",
        "end_lsn": "LSN of its end; null while it is there",
        "end_ns": "time of its end, ns",
        "end_type": "FrameType of what ended it: of the frame that brought it to IDEL if "
                    "idel.server removed it (a large body); 0: not persistent, it ended with its "
                    "manager",
        "end_reason": "reason of that frame, as `reason` of events",
        "ends": "ends: 1 or 0 in a sound archive; 0, too, of who ended with the manager",
        "first_lsn": "LSN of its first frame",
        "last_lsn": "LSN of its last frame",
        "last_ns": "time of its last frame, ns",
        "last_queue": "queue of its last frame",
        "seen": "bit n: it has a frame of type n",
        "queues_seen": "bit n: it has a frame of a queue n modulo 64",
        "first_epoch": "manager of its first frame",
        "last_epoch": "manager of its last frame",
        "life_ns": "from PUT to end, ns",
        "born_rest": "nanoseconds of `born` after its microsecond",
        "ended_rest": "nanoseconds of `ended_at` after its microsecond",
        "first_wait_ns": "first_give_ns less born_ns (less 0: no birth is known)",
        "behind_end_ns": "last_ns less end_ns (less 0: it has no end)",
        "behind_end_lsn": "last_lsn less end_lsn (less 0: it has no end)",
        "before_born_lsn": "born_lsn (0: no birth is known) less first_lsn",
        "born": "time of the PUT",
        "first_give": "time of the first hand-out",
        "ended_at": "time of its end",
        "last": "time of its last frame",
        "end_how": "what ended it, in words (done, move, poison, delete ...; deleted: by an "
                   "operator, backout: put by a unit in doubt that was backed out, died: with its "
                   "manager)",
        "last_queue_name": "name of the queue of its last frame, then",
        "ended": "1: it has ended, 0: it is there",
        "day": "day (UTC) of its birth",
    }),
    "stays": Meaning("a stay of a message on a queue; one that returns has another (`visit`)", {
        "visit": "1: the first stay of the message on this queue, and so on",
        "arrived_ns": "when it came, ns",
        "arrived_lsn": "LSN of the frame that brought it",
        "arrived_by": "FrameType of that frame",
        "arrived_reason": "reason of that frame, as `reason` of events; null: it has none",
        "came_from": "queue that it came from; 0 = from outside",
        "priority": "on this queue, 0 to 9",
        "until_s": "not handed out before, unix seconds; 0 = at once",
        "given_ns": "first hand-out, ns",
        "given_lsn": "LSN of the first hand-out",
        "last_given_ns": "last hand-out, ns",
        "reader": "client of the last hand-out",
        "reader_pid": "process of the last hand-out",
        "reader_uid": "user of that process",
        "reader_name": "name of that reader, as its program gave it; null: it gave none",
        "attempts": "failed attempts that count now, with the one under way: as the index says",
        "gives": "hand-outs in this stay",
        "failed": "failed attempts in this stay",
        "deaths": "readers that died with it",
        "put_off": "times that it was deferred, held, or put by a unit in doubt",
        "left_ns": "when it left, ns; null while it is there",
        "left_lsn": "LSN of the frame that took it off",
        "left_by": "FrameType of that frame; 0: it ended with its manager",
        "left_reason": "reason of that frame, as `reason` of events",
        "went_to": "the first queue that it went to; 0 = none",
        "size": "bytes of the body",
        "first_epoch": "manager of its first frame here",
        "given_epoch": "manager of its last hand-out",
        "last_epoch": "manager of its last frame here",
        "last_lsn": "LSN of its last frame here",
        "ready_ns": "when it could first be taken, ns: it had come, its sender's delay was over, "
                    "no operator held it, its sender's unit of work was committed",
        "wait_ns": "arrival to first hand-out, ns",
        "ready_wait_ns": "when it could first be taken to first hand-out, ns",
        "arrived_rest": "nanoseconds of `arrived` after its microsecond",
        "left_rest": "nanoseconds of `left_at` after its microsecond",
        "withheld_ns": "arrival until it could first be taken, ns: mostly 0",
        "again_ns": "first to last hand-out, ns: mostly 0",
        "others_ns": "service_ns less work_ns: its reader was at those before it, ns",
        "behind_left_lsn": "last_lsn less left_lsn (less 0: it is there)",
        "service_ns": "last hand-out to the end, ns; of messages taken together with those before",
        "work_ns": "the reader's own time, ns: of messages taken together each begins when the one "
                   "before is finished",
        "arrived": "when it came",
        "given": "first hand-out",
        "last_given": "last hand-out",
        "ready": "when it could first be taken",
        "left_at": "when it left",
        "arrived_how": "the frame that brought it, in words",
        "left_how": "the frame that took it off, in words, as `end_how` of messages",
        "queue_name": "name of the queue when the stay ended",
        "came_from_name": "name of the queue that it came from, then; null: from outside",
        "went_to_name": "name of the queue that it went to, then; null: none",
        "ended": "1: the message has ended, 0: it is there",
        "day": "day (UTC) of the arrival",
    }),
    "queue_minute": Meaning("a queue and minute in which something was or happened", {
        "minute_ns": "begin of the minute, ns",
        "minute": "begin of the minute",
        "arrivals": "messages that came",
        "departures": "messages that left",
        "oldest_s": "age of the oldest message at the end of the minute, of the last one at the "
                    "end of the data, seconds; 0 = none",
        "depth": "messages at the end of the minute",
    }),
    "queue_hour": Meaning("a queue and hour, of the messages that arrived in it", {
        "hour_ns": "begin of the hour, ns",
        "hour": "begin of the hour",
        "arrivals": "messages that came",
        "departures": "those of them that have left since",
        **_times("wait", "wait from the arrival on", "wait"),
        **_times("ready_wait", "wait since it could be taken", "ready wait"),
        **_times("service", "service time", "service time"),
        "failed": "failed attempts",
        "deaths": "readers that died with one of them",
        "bytes": "bytes of the bodies",
        "wait_max_s": "longest wait from the arrival on, seconds",
        "ready_wait_max_s": "longest wait since it could be taken, seconds",
        "load": "readers that were busy with them on average",
    }),
    "readers": Meaning("a reader process and day on which it finished something", {
        "messages": "messages that it finished",
        "gives": "hand-outs of these",
        "failed": "failed attempts of these",
        "deaths": "readers that had died with one of these",
        "busy_s": "its own time for them, seconds",
        "span_s": "first hand-out to last end, seconds",
        "busy_share": "busy_s of span_s, 0 to 1",
        **_times("work", "of its own time for a message", "time of its own for a message"),
        "first": "first hand-out",
        "last": "last end",
        "day": "day (UTC) of the ends",
    }),
    "poison": Meaning("a queue, reader, sender and size class with failures, and day of arrival", {
        "failed": "failed attempts",
        "deaths": "readers that died with one of them",
        "poisoned": "messages that went to POISON or a dead-letter queue",
        "example": "QPoolId of one of them",
        "day": "day (UTC) of the arrival",
    }),
    "programs": Meaning("a process and day: what it put and what it got, as accounting wants it", {
        "program": "name that it gave itself; null: it gave none",
        "pid": "process",
        "uid": "user of that process",
        "put": "messages that it put",
        "put_bytes": "bytes of their bodies",
        "got": "messages of which it was the last reader, once for each queue",
        "got_bytes": "bytes of their bodies",
        "finished": "those of them that have left the queue",
        "gives": "hand-outs of these messages",
        "failed": "failed attempts of these messages",
        "deaths": "readers that died with one of these messages",
        **_times("ready_wait", "wait of what it got, since it could be taken", "ready wait"),
        "day": "day (UTC) on which the messages were put, or came to the queue that it got them of",
    }),
    "hand_outs": Meaning("a client, queue and day: what it was handed out, and made of it", {
        "client": "client id in its epoch",
        "program": "name that it gave itself; null: it gave none",
        "pid": "process; 0: of a manager before, who is not known",
        "uid": "user of that process",
        "gives": "hand-outs to it",
        "give_bytes": "bytes of the bodies, each time that they were handed out",
        "again": "hand-outs of these that were not the first attempt",
        "done": "messages that it took off the queue; as an operator, too",
        "deferred": "hand-outs that it put off",
        "returned": "hand-outs that it gave back, or that came back untouched or backed out",
        "failed": "failed attempts of its own",
        "deaths": "those of them that failed as it died",
        "day": "day (UTC) of the hand-outs and answers",
    }),
    "operators": Meaning("an order of an operator", {
        "lsn": "LSN of the order",
        "ordered_at": "when it was given",
        "uid": "user that gave it",
        "pid": "process that gave it",
        "order_json": "JSON: who, what, why",
        "messages": "messages that it changed",
    }),
    "sizes": Meaning("a queue and size class, of all stays", {
        "messages": "stays",
        "bytes": "bytes of the bodies",
        "largest": "bytes of the largest body",
        "journal_bytes": "bytes in the journal, estimated: body, 160 of descriptor, 128 a frame",
        "amplification": "journal bytes a body byte",
    }),
    "routes": Meaning("a way from queue to queue and the frame that took it", {
        "from_queue": "number of the queue; 0 = from outside",
        "to_queue": "number of the queue; 0 = none, to the outside",
        "how": "the frame in words, as `end_how` of messages",
        "came": "arrivals on to_queue",
        "departed": "stays that ended on from_queue: one, however many queues a message goes to",
        "bytes": "bytes of the bodies",
        "messages": "who came; of those that went nowhere, who departed",
        "from_queue_name": "name that the queue had last when the row was made",
        "to_queue_name": "name that the queue had last when the row was made",
    }),
}
