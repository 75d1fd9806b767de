"""omqdump's listings: the original's tables, and the JSON records that only it has (the others:
omq.cli.look.index_records). A JSON record is a contract: keys are only added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from omq.base.clock import seed_time
from omq.base.errors import OmqError
from omq.base.names import escape
from omq.cli.look.index_records import queue_record
from omq.core.index.item_refs import brief
from omq.core.index.rows import Averages, EntryRow, QueueRow, ReaderRow
from omq.core.look.message_facts import MessageFacts
from omq.format.index import QueueFlag

Table = Callable[[Sequence[QueueRow]], Iterator[str]]
_NAME_WIDTH: Final = 17  # the longest queue name and a space
_WIDTHS: Final = (12, 10, 10)  # messages, active, ever: as in the original
_FIGURE_WIDTH: Final = 10


def load_table(rows: Sequence[QueueRow]) -> Iterator[str]:
    """s: the average number of messages on each queue."""
    yield _line("QUEUE", "Messages", "Active", "Ever", ["Load [1min,5min,15min]"])
    yield from _queue_lines(rows, lambda row: row.load)


def throughput_table(rows: Sequence[QueueRow]) -> Iterator[str]:
    """T: the number of messages processed a minute on each queue."""
    yield _line("QUEUE", "Messages", "Active", "Ever", ["Throughput"])
    yield _line("", "", "", "", ["[1min,5min,15min]"])
    yield from _queue_lines(rows, lambda row: row.throughput)


def _queue_lines(rows: Sequence[QueueRow], figures: Callable[[QueueRow], Averages]
                 ) -> Iterator[str]:
    special = False
    for row in rows:  # the special ones are last
        if row.special and not special:
            special = True
            yield ""
            yield "Special queues."
        shown = [f"{figure:.2f}" for figure in figures(row)]
        yield _line(row.name, str(row.messages), str(row.active), str(row.ever), shown)
    remembered = sum(row.remembered for row in rows)
    if remembered:
        yield ""
        yield f"Message ids remembered on IDEL (dedupe_s): {remembered}"


def _line(name: str, messages: str, active: str, ever: str, figures: Sequence[str]) -> str:
    cells = zip((messages, active, ever), _WIDTHS, strict=True)
    left = f"{name:<{_NAME_WIDTH - 1}} " + "".join(_cell(*cell) for cell in cells)
    return (left + "".join(_cell(figure, _FIGURE_WIDTH) for figure in figures)).rstrip()


def _cell(text: str, width: int) -> str:
    """Left aligned, and never run together with the next."""
    return f"{text:<{width - 1}} "


ENTRY_TITLE: Final = (f"{'QPoolId':<10}{'Pri':<4}{'State':<9}{'P':<2}{'Fail':<5}"
                      f"{'Size':<9}{'Submitted':<18}Item Ref")
"""80 columns, with item references in their brief form."""
REMEMBERS: Final = "a remembered id"
"""In the place of one: it is not a message (ADR 0047)."""


def entry_table(entries: Iterable[EntryRow]) -> Iterator[str]:
    """l: a line a message, in the order of hand-out. `P` n: it does not outlive the manager."""
    yield ENTRY_TITLE
    for entry in entries:
        message = entry.message
        persistent = "y" if message.persistent else "n"
        yield (f"{message.qpool:<9} {entry.priority:<3} {entry.state.name.lower():<8} "
               f"{persistent} {entry.attempts:<4} {message.size:<8} "
               f"{seed_time(entry.submitted_ns):<17} "
               f"{REMEMBERS if message.remembers else brief(message.item_ref)}")


MAIL_TITLE: Final = f"{'QPoolId':<10}{'State':<9}{'Submitted':<18}{'Sender':<22}Subject"


def mail_table(entries: Iterable[tuple[EntryRow, MessageFacts]]) -> Iterator[str]:
    """l --mail: a line a message, 80 columns; what is longer ends in `~`."""
    yield MAIL_TITLE
    for entry, facts in entries:
        found = mail_record(facts)
        yield (f"{entry.message.qpool:<9} {entry.state.name.lower():<8} "
               f"{seed_time(entry.submitted_ns):<17} {_cut(found['sender'], 21):<21} "
               f"{_cut(found['subject'], 21)}").rstrip()


def mail_record(facts: MessageFacts) -> dict[str, object]:
    """What --mail adds to the JSON object; null where the message cannot be read."""
    try:
        return {"sender": facts.sender, "recipients": facts.recipients, "subject": facts.subject}
    except OmqError:
        return {"sender": None, "recipients": None, "subject": None}


def _cut(text: object, width: int) -> str:
    shown = "(unreadable)" if text is None else escape(str(text), 256)
    return shown if len(shown) <= width else shown[: width - 1] + "~"


def status_lines(row: QueueRow, readers: Sequence[ReaderRow], walked: int) -> Iterator[str]:
    """v: one queue. The words are those of the text dump, as far as it has them."""
    yield f"Queue Name={row.name}"
    yield f"Flags=0x{row.flags:08X}{_flag_words(row.flags)}"
    yield f"Messages={row.messages}"
    yield f"Ready Messages={row.ready}"
    yield f"Active Messages={row.active}"
    yield f"Deferred Messages={row.deferred}"
    yield f"Held Messages={row.held}"
    if row.prepared:
        yield f"Prepared Messages={row.prepared}"
    if row.remembered:
        yield f"Remembered ids={row.remembered}"
    yield f"Messages ever={row.ever}"
    if row.expired:
        yield f"Messages expired={row.expired}"
    yield f"Messages processed={row.processed}"
    yield f"Messages this hour={row.hour}"
    yield f"Messages last hour={row.last_hour}"
    yield f"Maximum depth={_limit(row.max_depth)}"
    yield f"Maximum message length={_limit(row.max_length)}"
    yield "Load=" + " ".join(f"{figure:.2f}" for figure in row.load)
    yield "Throughput=" + " ".join(f"{figure:.2f}" for figure in row.throughput)
    yield f"Queue Readers={len(readers)}"
    for reader in readers:
        kind = "auxiliary" if reader.auxiliary else "main"
        yield f"Reader Pid={reader.pid} {kind} active={reader.active} {escape(reader.name)}"
    yield f"Walked={walked}"


def _limit(value: int) -> str:
    return "unlimited" if value in (0, _UNLIMITED) else str(value)


def _flag_words(flags: int) -> str:
    shown = [word for flag, word in _FLAG_WORDS.items() if flags & flag]
    return f" ({', '.join(shown)})" if shown else ""


_UNLIMITED: Final = 0xFFFFFFFF
_FLAG_WORDS: Final = {
    QueueFlag.SUSPENDED: "get inhibited", QueueFlag.SHUTDOWN: "shutdown",
    QueueFlag.LOCKED: "locked by reader", QueueFlag.PUT_INHIBITED: "put inhibited"}


def status_record(row: QueueRow, readers: Sequence[ReaderRow], walked: int) -> dict[str, object]:
    """The JSON object of v."""
    return {**queue_record(row), "flags": row.flags, "this_hour": row.hour,
            "last_hour": row.last_hour, "max_depth": row.max_depth, "max_length": row.max_length,
            "walked": walked, "readers": [
                {"pid": reader.pid, "name": reader.name, "auxiliary": reader.auxiliary,
                 "active": reader.active} for reader in readers]}
