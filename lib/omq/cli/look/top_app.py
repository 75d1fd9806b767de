"""The screen of omtop: a table of queues, of a queue's messages or readers, the messages that a
reader holds, and the text of a message.

Everything shown is a copy from the index, taken once an interval. Orders (hold, release, requeue)
go through cli.operate.change after a question; what the manager refuses is shown on the screen.
"""

from __future__ import annotations

from typing import ClassVar, Final

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Label, Static

from omq.base import clock
from omq.base.clock import seed_time
from omq.base.errors import OmqError
from omq.base.names import POISON_NAME
from omq.cli.look.gateways import gateway_lines
from omq.cli.look.omqwhy import explain, lines
from omq.cli.look.top_facts import COLUMNS, SORTS, Moment, cells, head, moment
from omq.cli.operate import change as changes
from omq.cli.operate.change_plan import Change, Doing, target
from omq.core.index.rows import EntryRow, ReaderRow
from omq.core.look.look import look
from omq.services.daemon.options import Location

MESSAGES_MAX: Final = 500
_ORDERS: Final = {"hold": Change(Doing.HOLD), "release": Change(Doing.RELEASE),
                  "requeue": Change(Doing.MOVE)}
_MESSAGE_COLUMNS: Final = ("QPoolId", "Pri", "State", "Failed", "Size", "Submitted", "Item Ref")
_READER_COLUMNS: Final = ("Row", "Pid", "Kind", "Active", "Processed", "Registered", "Last Request",
                          "Name")


def _reader_cells(row: ReaderRow) -> list[str]:
    return [str(row.number), str(row.pid), "auxiliary" if row.auxiliary else "main",
            str(row.active), str(row.processed), seed_time(row.registered_ns),
            seed_time(row.request_ns), row.name]


class Question(ModalScreen[bool]):
    """Asks before an order."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "yes", "yes"), Binding("n,escape", "no", "no")]
    CSS = "Question { align: center middle; } Question Label { border: round; padding: 1 2; }"

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        yield Label(f"{self._text} (y/n) ?", markup=False)

    def action_yes(self) -> None:
        self.dismiss(result=True)

    def action_no(self) -> None:
        self.dismiss(result=False)


HELP: Final = """s       sort by the next column         r       turn the order
Enter   into a queue; there into a message, or what a reader holds
e       from a queue to its readers, and back
Escape  back                            p       pause, and go on
h       hold the message                l       release it
u       send it back from POISON        x, q    end

Each order asks first. The columns: messages, in readers' hands,
deferred, held; in and out a second; load of 1, 5, 15 minutes; age of
the oldest message; readers."""
"""Of the key `?`."""


class Help(ModalScreen[None]):
    """The keys; any key ends it."""

    CSS = "Help { align: center middle; } Help Label { border: round; padding: 1 2; }"

    def compose(self) -> ComposeResult:
        yield Label(HELP, markup=False)

    def on_key(self) -> None:
        self.dismiss()


class TopApp(App[int]):
    """See the module. Where the user has gone into: `queue`, there `readers` instead of its
    messages, `reader` (its row), `message`."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "sort", "sort"), Binding("r", "turn", "turn", show=False),
        Binding("e", "readers", "readers"),
        Binding("escape", "back", "back", key_display="esc"), Binding("h", "order('hold')", "hold"),
        Binding("l", "order('release')", "release"), Binding("u", "order('requeue')", "requeue"),
        Binding("p", "pause", "pause"), Binding("x,q", "leave", "exit"),
        Binding("question_mark", "keys", "help", key_display="?")]

    def __init__(self, location: Location, interval_s: float, sort: str) -> None:
        super().__init__()
        self._location = location
        self._interval_s = interval_s
        self._sort, self._reverse, self._paused = sort, False, False
        self._before: Moment | None = None
        self.queue = ""
        self.message = 0
        self.readers = False
        self.reader: int | None = None
        self._rows: dict[int, EntryRow] = {}
        self._shape = ""

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(id="head", markup=False)
            yield DataTable(id="table", cursor_type="row")
            yield Static(id="text", markup=False)
        yield Footer(compact=True)

    def on_mount(self) -> None:
        self.refresh_now()
        self.set_interval(self._interval_s, self._tick)

    def _tick(self) -> None:
        if not self._paused:
            self.refresh_now()

    def refresh_now(self) -> None:
        """Look and show."""
        try:
            self._look()
        except OmqError as error:
            self.query_one("#head", Static).update(str(error))

    def _look(self) -> None:
        with look(self._location.paths) as seen:
            now = moment(seen, clock.wall_ns(), self._before,
                         gateway_lines(self._location))
            self._before = now
            shown = [*head(now), self._where()]
            if self.message:
                found = [line for answer in explain(self._location, seen, self.message)
                         for line in lines(answer)]
                self.query_one("#text", Static).update(
                    "\n".join(found or [f"message {self.message} is not here any more"]))
            elif self.reader is not None:
                held = [row for row in seen.view.active() if row.reader == self.reader]
                self._show_messages(held)
                self._tell_readers([row for row in now.readers if row.number == self.reader])
            elif self.readers:
                self._show("readers", _READER_COLUMNS, [
                    (str(row.number), _reader_cells(row)) for row in self._mine(now)])
                self.query_one("#text", Static).update("")
            elif self.queue:
                self._show_messages(list(seen.view.entries(self.queue, MESSAGES_MAX)))
                self._tell_readers(self._mine(now))
            else:
                self.query_one("#text", Static).update("")
                self._show("queues", COLUMNS, [
                    (line.row.name, cells(line))
                    for line in now.sorted(self._sort, reverse=self._reverse)])
        self.query_one("#head", Static).update("\n".join(shown))
        self.query_one("#table", DataTable).display = not self.message

    def _mine(self, now: Moment) -> list[ReaderRow]:
        return [row for row in now.readers if row.queue == self.queue]

    def _tell_readers(self, rows: list[ReaderRow]) -> None:
        self.query_one("#text", Static).update("\n".join(
            f"reader {row.name} pid {row.pid} active {row.active} "
            f"{'auxiliary' if row.auxiliary else 'main'}" for row in rows))

    def _where(self) -> str:
        if self.message:
            return f"message {self.message} on {self.queue}"
        if self.reader is not None:
            return f"{self.queue}: what reader {self.reader} holds"
        if self.readers:
            return f"{self.queue}: its readers"
        if self.queue:
            return f"{self.queue}: the first {MESSAGES_MAX} messages in the order of hand-out"
        return f"sorted by {self._sort}{' (turned)' if self._reverse else ''}" + (
            "  PAUSED" if self._paused else "")

    def _show_messages(self, rows: list[EntryRow]) -> None:
        self._rows = {row.message.qpool: row for row in rows}
        self._show("messages", _MESSAGE_COLUMNS, [
            (str(row.message.qpool), [
                str(row.message.qpool), str(row.priority), row.state.name.lower(),
                str(row.attempts), str(row.message.size), seed_time(row.submitted_ns),
                row.message.item_ref]) for row in rows])

    def _show(self, shape: str, columns: tuple[str, ...], rows: list[tuple[str, list[str]]]
              ) -> None:
        table: DataTable[str] = self.query_one("#table", DataTable)
        at = table.cursor_row if shape == self._shape else 0
        table.clear(columns=shape != self._shape)
        if shape != self._shape:
            table.add_columns(*columns)
            self._shape = shape
        for key, row in rows:
            table.add_row(*row, key=key)
        table.move_cursor(row=min(at, max(0, len(rows) - 1)))

    # keys

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        key = str(event.row_key.value)
        if self.queue and self.readers and self.reader is None:
            self.reader = int(key)
        elif self.queue:
            self.message = int(key)
        else:
            self.queue = key
        self.refresh_now()

    async def action_back(self) -> None:
        if self.message:
            self.message = 0
        elif self.reader is not None:
            self.reader = None
        elif self.readers:
            self.readers = False
        else:
            self.queue = ""
        self.refresh_now()

    def action_readers(self) -> None:
        """From a queue to its readers, and back."""
        if self.queue and not self.message and self.reader is None:
            self.readers = not self.readers
            self.refresh_now()

    def action_sort(self) -> None:
        self._sort = SORTS[(SORTS.index(self._sort) + 1) % len(SORTS)]
        self.refresh_now()

    def action_turn(self) -> None:
        self._reverse = not self._reverse
        self.refresh_now()

    def action_pause(self) -> None:
        self._paused = not self._paused
        self.refresh_now()

    def action_keys(self) -> None:
        """Every key, in words."""
        self.push_screen(Help())

    def action_leave(self) -> None:
        self.exit(0)

    def action_order(self, name: str) -> None:
        """Ask, then order it for the message under the cursor."""
        row = self._chosen()
        if row is None:
            self.notify("go into a queue and choose a message first", markup=False)
            return
        if name == "requeue" and row.queue != POISON_NAME:
            self.notify("only messages on POISON are sent back", markup=False)
            return

        def carry_out(answer: object) -> None:
            if answer is True:
                self._carry_out(name, row)

        self.push_screen(Question(f"{name} message {row.message.qpool} on {row.queue}"), carry_out)

    def _chosen(self) -> EntryRow | None:
        if self.message:
            return self._rows.get(self.message)
        table: DataTable[str] = self.query_one("#table", DataTable)
        if not self.queue or self._shape != "messages" or not table.row_count:
            return None
        return self._rows.get(int(table.get_row_at(table.cursor_row)[0]))

    def _carry_out(self, name: str, row: EntryRow) -> None:
        command = f"omtop {name} {row.message.qpool}"
        try:
            report = changes.carry_out(self._location, command, _ORDERS[name], [target(row)], "")
            changes.check(report, 1)
            self.notify(f"{name}: done", markup=False)
        except OmqError as error:
            self.notify(str(error), severity="error", markup=False)
        self.refresh_now()
