"""What a run has to do: which archive files are new, late, replaced, or to be read again, and which
batches they make void.

Errors: BadRequest (a file to be read again is gone), MixedArchives (no file is of the instance that
the tables are of).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from omq.base.errors import BadRequest, MixedArchives
from omq.format.archive import ArchiveHeader
from omqtools.omqspark import plan
from omqtools.omqspark.bronze import DAY_NS
from omqtools.omqspark.lake import Lake
from omqtools.omqspark.manifest import Batch, FileRecord, Manifest
from omqtools.omqspark.plan import Listed

New = dict[int, tuple[Listed, ArchiveHeader]]
Finding = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """What a run has to do: `todo`: files to tell, in order; `new`: those of them to read first;
    `replaced`: those of these that were read and are others now; `told`: batches that are void."""

    archive: str
    new: New
    todo: list[int]
    passed_over: list[dict[str, Any]]
    replaced: list[int] = field(default_factory=list)
    told: list[Batch] = field(default_factory=list)

    def known_of(self, files: Collection[int]) -> tuple[list[Finding], dict[str, int]]:
        """What void batches had found in those of these files that are not read again: some of it,
        and how many of each kind. What they did not keep by file counts with their last file."""
        found, counts = list[Finding](), dict[str, int]()
        for batch in self.told:
            kept = dict[str, int]()
            for each in batch.findings:
                kept[each["kind"]] = kept.get(each["kind"], 0) + 1
                if each["file"] in files and each["file"] not in self.new:
                    found.append(each)
                    counts[each["kind"]] = counts.get(each["kind"], 0) + 1
            for kind, count in batch.found.items() if batch.files[-1] in files else ():
                if count > kept.get(kind, 0):
                    counts[kind] = counts.get(kind, 0) + count - kept.get(kind, 0)
        return found, counts


def unknown(known: Manifest, item: Listed) -> bool:
    """Whether the head of a file must be read: it is new, or not listed as it was then."""
    record = known.files.get(item.number)
    return record is None or not record.listed_as(item.size, item.modified_ns)


def refuse_another(known: Manifest, archive: str, listed: Sequence[Listed],
                    found: Sequence[tuple[Listed, Any]]) -> None:
    """MixedArchives: no file here is of the instance that the tables are of. One stray is passed
    over; a wrong --archive is not."""
    ours = len(listed) > len(found) or any(isinstance(head, ArchiveHeader) for _, head in found)
    if known.uuid and not ours:
        fs, _ = plan.filesystem(archive)
        for item in listed:
            head = plan.head(fs, item)
            if isinstance(head, ArchiveHeader):
                raise MixedArchives(file=item.path, uuid=head.uuid.hex(), expected=known.uuid)


def what_to_do(known: Manifest, lake: Lake, archive: str, found: Sequence[tuple[Listed, Any]],
         again: str) -> Job:
    """What is to be done, with the batches that become void taken out of `known`."""
    new: New = {}
    over, replaced = list[Finding](), list[int]()
    valid = {item.number: (item, header) for item, header in found
             if isinstance(header, ArchiveHeader)}
    wanted = chosen(known, valid, again) if again else set()
    for item, header in found:
        record = known.files.get(item.number)
        if not isinstance(header, ArchiveHeader):
            over.append({"file": item.number, "kind": header.kind.value, "reason": header.reason})
        elif record is None or item.number in wanted or not record.is_of(header, item.size):
            new[item.number] = (item, header)
            known.uuid = known.uuid or header.uuid.hex()
            if record is not None and not record.is_of(header, item.size):
                replaced.append(item.number)
        else:  # of tables that were upgraded, or a copy of the file that was read
            known.files[item.number] = FileRecord.of(header, item.size, record.batch,
                                                     item.modified_ns)
    untold = known.files.keys() - known.counted()
    first = min([*new, *untold], default=0)
    if not first:
        return Job(archive, new, [], over)
    stay = known.base(first, lake.snapshots())
    void = known.batches[stay:]
    behind = {number for batch in void for number in batch.files}
    del known.batches[stay:]
    return Job(archive, new, sorted({*behind, *new, *untold}), over, replaced, void)


def chosen(known: Manifest, there: New, again: str) -> set[int]:
    """The files that "42" (a number), "2026-01-31" (a day, UTC) or "batch:3" names. BadRequest:
    there is none, or one is not in the archive any more."""
    if re.fullmatch(r"[0-9]{1,10}", again):
        wanted = {int(again)}
    elif re.fullmatch(r"batch:[0-9]{1,9}", again):
        wanted = {number for batch in known.batches if batch.number == int(again[6:])
                  for number in batch.files}
    else:
        try:
            start = int(datetime.fromisoformat(again).replace(tzinfo=UTC).timestamp()) * 10**9
        except ValueError as error:
            raise BadRequest(reason="--again takes the number of a file, a day like 2026-01-31 or "
                                    f"batch:3, not {again!r}") from error
        wanted = {record.number for record in known.files.values() if record.frames
                  and record.time_min < start + DAY_NS and record.time_max >= start}
    gone = sorted(wanted - there.keys())
    if gone or not wanted:
        raise BadRequest(reason=f"files {', '.join(map(str, gone)) or again} are not in the "
                                "archive, or cannot be read")
    return wanted
