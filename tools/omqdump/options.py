"""The one table of letters: what the menu shows and what each option does.

The letters, their titles and order are the original's; two more stand apart: u takes back a delete,
A carries out a plan. `needs` says what must be there: FILES (the spool), MANAGER (it changes
something, so a queue manager must run and answer).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from omqtools.omqdump import change_options, listings, message_files, walk_options
from omqtools.omqdump.option_desk import Desk

QUIT: Final = "q"


class Needs(Enum):
    """What an option needs of the instance."""

    NOTHING = "nothing"  # the session alone
    FILES = "files"  # the spool: it works with no manager and with no segment
    MANAGER = "manager"


class Takes(Enum):
    """Which words an option takes besides its answers, separated by blanks."""

    NOTHING = ""
    LISTING = "where count mail"
    ORDER = "yes force reason"
    MANY = "where count dry-run yes force priority reason"

    @property
    def words(self) -> tuple[str, ...]:
        """Their names, as they stand behind `--`."""
        return tuple(self.value.split())


@dataclass(frozen=True, slots=True)
class Option:
    """One line of the menu."""

    letter: str
    title: str
    action: Callable[[Desk], None] | None = None  # None: Quit
    answers_max: int = 0
    needs: Needs = Needs.FILES
    takes: Takes = Takes.NOTHING


_MANAGER: Final = Needs.MANAGER
_ORDER, _MANY = Takes.ORDER, Takes.MANY
_TABLE: Final = (
    Option("s", "Show summary of queues", listings.show_summary),
    Option("l", "List (browse) msgs on queue", listings.browse, 2, takes=Takes.LISTING),
    Option("m", "Move opened msg between queues", change_options.move_opened, 2, _MANAGER, _ORDER),
    Option("M", "Move msgs between queues", change_options.move_many, 4, _MANAGER, _MANY),
    Option("d", "Delete opened msg from queue", change_options.delete_opened, 1, _MANAGER, _ORDER),
    Option("D", "Delete msgs from queue", change_options.delete_many, 3, _MANAGER, _MANY),
    Option("v", "View status of queue", walk_options.status, 1),
    Option("a", "Access opened msgs info", walk_options.access, 0, Needs.NOTHING),
    Option("O", "Open message file", message_files.open_file, 1),
    Option("L", "list configured queues", listings.list_configured),
    Option("T", "List queue throughput averages", listings.show_throughput),
    Option("o", "Output opened msg to files", message_files.output, 2),
    Option("i", "Input a msg from files", message_files.input_files, 1, Needs.NOTHING),
    Option("g", "Get (serial open) next msg", walk_options.get_next, 1),
    Option("G", "Get (serial open) nth+1 msg", walk_options.get_nth, 2),
    Option("r", "Read (browse) opened msg", walk_options.read, 2),
    Option("c", "Close opened msg", walk_options.close, 1, Needs.NOTHING),
    Option("f", "Find (priority open) next msg", walk_options.find, 2),
    Option("p", "Put opened msg on a queue", change_options.put_opened, 2, _MANAGER, _ORDER),
    Option("t", "Text dump", listings.dump_text, 2),
    Option("C", "Copy msgs", change_options.copy_many, 4, _MANAGER, _MANY),
    Option("Z", "Zap (forcefully delete) msg", change_options.zap, 3, _MANAGER, _MANY),
)
_MORE: Final = (
    Option("u", "Undo deletes", change_options.undo, 1, _MANAGER, _MANY),
    Option("A", "Apply a plan", change_options.apply_plan, 1, _MANAGER, _ORDER),
)
MENU: Final = {option.letter: option for option in (*_TABLE, Option(QUIT, "Quit"))}
"""By letter, in the order of the menu: the left column, the right one, and Quit."""
MORE: Final = {option.letter: option for option in _MORE}
"""What the original did not have."""
OPTIONS: Final = MENU | MORE
