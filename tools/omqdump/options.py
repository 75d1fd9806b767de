"""The one table of letters: what the menu shows and what each option does.

The letters, their titles and order are the original's. An option without an action is known but not
available; it is never mistaken for another one, and its answers are never taken for options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TextIO

from omq.base.errors import BadRequest
from omq.base.names import escape
from omq.cli.common import print_json
from omq.core.index_view import IndexView
from omqdump import render
from omqdump.answers import Answers
from omqdump.sources import Sources
from omqdump.text_file import default_reference, dump_path, write_lines

QUIT: Final = "q"
_POOL_FILE: Final = "/tmp/omqmsg"


@dataclass(frozen=True, slots=True)
class Desk:
    """What an option works with."""

    sources: Sources
    answers: Answers
    out: TextIO
    json: bool  # one JSON object a line instead of tables

    def print(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.out.write(line + "\n")


@dataclass(frozen=True, slots=True)
class Option:
    """One line of the menu; `action` None: not available."""

    letter: str
    title: str
    action: Callable[[Desk], None] | None = None
    answers_max: int = 0


def show_summary(desk: Desk) -> None:
    """s: messages, active ones and load of each queue."""
    _show_queues(desk, render.load_table)


def show_throughput(desk: Desk) -> None:
    """T: messages, active ones and throughput of each queue."""
    _show_queues(desk, render.throughput_table)


def _show_queues(desk: Desk, table: render.Table) -> None:
    with desk.sources.index() as view:
        rows = view.queues()
    if desk.json:
        for row in rows:
            print_json(render.queue_record(row))
    else:
        desk.print(table(rows))


def list_configured(desk: Desk) -> None:
    """L: names of the queues, from poolctrl; the queue manager need not run."""
    for name in desk.sources.configured_queues():
        if desk.json:
            print_json({"queue": name})
        else:
            desk.out.write(name + "\n")


def browse(desk: Desk) -> None:
    """l: the messages on a queue in the order in which they are handed out."""
    queue = desk.answers.ask("Queue Name:").upper()
    limit = _number(desk.answers.word())
    with desk.sources.index() as view:
        _browse(desk, view, queue, limit)


def _browse(desk: Desk, view: IndexView, queue: str, limit: int | None) -> None:
    entries = view.entries(queue, limit)
    if desk.json:
        for entry in entries:
            print_json(render.entry_record(entry))
    else:
        desk.print(render.entry_table(entries))


def _number(text: str) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        raise BadRequest(reason=f"{escape(text)!r} is no number of messages")
    return int(text)


def dump_text(desk: Desk) -> None:
    """t: the pool files or the queue manager's memory as text; file `-`: to the output."""
    what = desk.answers.ask("Message pool (m) or queues (q) ? ")
    if what not in ("m", "q"):
        raise BadRequest(reason=f"{escape(what)!r} is neither m (Message Pool) nor q (queues)")
    default = _POOL_FILE if what == "m" else default_reference()
    answer = desk.answers.ask(f"Msg File Name ({default}):", default)
    lines = desk.sources.pool_text() if what == "m" else desk.sources.memory_text()
    if answer == "-":
        with lines as text:
            desk.print(text)
        return
    path = dump_path(desk.sources.paths, answer)
    with lines as text:
        count = write_lines(path, text)
    if desk.json:
        print_json({"file": str(path), "lines": count})
    elif answer == default and not desk.answers.interactive:
        desk.out.write(f"{default}\n")  # a script must learn the name that it did not choose


_TABLE: Final = (
    Option("s", "Show summary of queues", show_summary),
    Option("l", "List (browse) msgs on queue", browse, 2),
    Option("m", "Move opened msg between queues"),
    Option("M", "Move msgs between queues"),
    Option("d", "Delete opened msg from queue"),
    Option("D", "Delete msgs from queue"),
    Option("v", "View status of queue"),
    Option("a", "Access opened msgs info"),
    Option("O", "Open message file"),
    Option("L", "list configured queues", list_configured),
    Option("T", "List queue throughput averages", show_throughput),
    Option("o", "Output opened msg to files"),
    Option("i", "Input a msg from files"),
    Option("g", "Get (serial open) next msg"),
    Option("G", "Get (serial open) nth+1 msg"),
    Option("r", "Read (browse) opened msg"),
    Option("c", "Close opened msg"),
    Option("f", "Find (priority open) next msg"),
    Option("p", "Put opened msg on a queue"),
    Option("t", "Text dump", dump_text, 2),
    Option("C", "Copy msgs"),
    Option("Z", "Zap (forcefully delete) msg"),
)
OPTIONS: Final = {option.letter: option for option in (*_TABLE, Option(QUIT, "Quit"))}
"""By letter, in the order of the menu: the left column, the right one, and Quit."""
