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

from omqtools.omqdump import changing, exchange, listings, walking
from omqtools.omqdump.desk import Desk

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
    Option("m", "Move opened msg between queues", changing.move_opened, 2, _MANAGER, _ORDER),
    Option("M", "Move msgs between queues", changing.move_many, 4, _MANAGER, _MANY),
    Option("d", "Delete opened msg from queue", changing.delete_opened, 1, _MANAGER, _ORDER),
    Option("D", "Delete msgs from queue", changing.delete_many, 3, _MANAGER, _MANY),
    Option("v", "View status of queue", walking.status, 1),
    Option("a", "Access opened msgs info", walking.access, 0, Needs.NOTHING),
    Option("O", "Open message file", exchange.open_file, 1),
    Option("L", "list configured queues", listings.list_configured),
    Option("T", "List queue throughput averages", listings.show_throughput),
    Option("o", "Output opened msg to files", exchange.output, 2),
    Option("i", "Input a msg from files", exchange.input_files, 1, Needs.NOTHING),
    Option("g", "Get (serial open) next msg", walking.get_next, 1),
    Option("G", "Get (serial open) nth+1 msg", walking.get_nth, 2),
    Option("r", "Read (browse) opened msg", walking.read, 2),
    Option("c", "Close opened msg", walking.close, 1, Needs.NOTHING),
    Option("f", "Find (priority open) next msg", walking.find, 2),
    Option("p", "Put opened msg on a queue", changing.put_opened, 2, _MANAGER, _ORDER),
    Option("t", "Text dump", listings.dump_text, 2),
    Option("C", "Copy msgs", changing.copy_many, 4, _MANAGER, _MANY),
    Option("Z", "Zap (forcefully delete) msg", changing.zap, 3, _MANAGER, _MANY),
)
_MORE: Final = (
    Option("u", "Undo deletes", changing.undo, 1, _MANAGER, _MANY),
    Option("A", "Apply a plan", changing.apply_plan, 1, _MANAGER, _ORDER),
)
MENU: Final = {option.letter: option for option in (*_TABLE, Option(QUIT, "Quit"))}
"""By letter, in the order of the menu: the left column, the right one, and Quit."""
MORE: Final = {option.letter: option for option in _MORE}
"""What the original did not have."""
OPTIONS: Final = MENU | MORE
