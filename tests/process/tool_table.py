"""The table of lib/omq/docs/TOOLS.md: each tool and letter, and what it does in each state.

    live      a manager that works        hung      stopped by SIGSTOP
    killed    its segment is left over    stopped   only the files are there
    damaged   the same with a damaged payload in the journal and a damaged pool record
    garbled   killed, and the header of its segment and both slots of poolctrl are garbage too
"""

from __future__ import annotations

from typing import Final

from omq.base.errors import Exit

STATES: Final = ("live", "hung", "killed", "stopped", "damaged", "garbled")
LOOKS: Final = dict.fromkeys(STATES, int(Exit.OK))
_DAMAGED: Final = int(Exit.DATA)
_GONE: Final = int(Exit.UNAVAILABLE)
CHANGES: Final = {state: 0 if state == "live" else _GONE for state in STATES}

Cell = tuple[str, tuple[str, ...], dict[str, int]]
"""Command, its words (@: a QPoolId on queue A, %: a free file name), exit code by state."""


def _letters() -> dict[str, Cell]:
    looks = {"s": ["s"], "l": ["l A"], "v": ["v A"], "a": ["g A", "a"], "L": ["L"], "T": ["T"],
             "o": ["g A", "o 2000 %"], "g": ["g A"], "G": ["G A 0"], "r": ["g A", "r 2000 body"],
             "c": ["g A", "c 2000"], "f": ["f A"], "t m": ["t m %"], "t q": ["t q %"],
             "O": ["g A", "o 2000 %", "O %"], "i": ["g A", "o 2000 %", "i %"], "q": ["q"]}
    changes = {"m": ["f A @", "m 2000 B"], "M": ["M A B --where id=@"], "d": ["f A @", "d 2000"],
               "D": ["D A --where id=@"], "p": ["f A @", "p 2000 B"],
               "C": ["C A B --where id=@"], "Z": ["Z A --where id=@"],
               "u": ["D A --where id=@", "u @"], "A": ["M A B --where id=@ --dry-run %", "A %"]}
    cells = {f"omqdump {letter}": ("omqdump", _scripted(script), LOOKS)
             for letter, script in looks.items()}
    cells["omqdump L"] = ("omqdump", ("-e", "L"), {**LOOKS, "garbled": _DAMAGED})
    cells |= {f"omqdump {letter}": ("omqdump", _scripted(script), CHANGES)
              for letter, script in changes.items()}
    return cells


def _scripted(options: list[str]) -> tuple[str, ...]:
    return tuple(word for option in options for word in ("-e", option))


TABLE: Final[dict[str, Cell]] = {
    **_letters(),
    "omstat -a": ("omstat", ("-a",), dict.fromkeys(STATES, int(Exit.NO))),
    "omstat -s": ("omstat", ("-s",), LOOKS),
    "omstat -p": ("omstat", ("-p",), LOOKS),
    "omstat --metrics": ("omstat", ("--metrics",), LOOKS),
    "omq health": ("omq health", (), dict.fromkeys(STATES, int(Exit.NO))),
    "omshowlog": ("omshowlog", ("-l", "9", "-P"), LOOKS),
    "omqwhy": ("omqwhy", ("@",), LOOKS),
    "omqlog --message": ("omqlog", ("--message", "@"), LOOKS),
    "omqlog --mail": ("omqlog", ("--mail", "@"), LOOKS),
    "omqlog --operator": ("omqlog", ("--operator",), LOOKS),
    "omqshape": ("omqshape", (), LOOKS),
    "omtop --once": ("omtop", ("--once", "--interval", "0.2"), LOOKS),
    "omqadvise": ("omqadvise", (), LOOKS),
    "omqcheck": ("omqcheck", (), {**LOOKS, "damaged": int(Exit.NO), "garbled": int(Exit.NO)}),
    "omscan": ("omscan", (), LOOKS),
    "omhold": ("omhold", ("@",), CHANGES),
    "omrelease": ("omrelease", ("--where", "state=held"), CHANGES),
    "omrequeue": ("omrequeue", ("@", "--queue", "A", "--to", "B"), CHANGES),
    "omq queue list": ("omq queue", ("list",), LOOKS),
    "omq queue show": ("omq queue", ("show", "B"), LOOKS),
    "omq queue roll-over": ("omq queue", ("roll-over", "B", "--to", "B.OLD"), CHANGES),
    "omfreeq": ("omfreeq", ("A", "-p", "1"), {**CHANGES, "live": int(Exit.NO)}),
}

_WORDS: Final = {int(Exit.OK): "yes", int(Exit.NO): "says no (1)", _GONE: "refuses (69)",
                 _DAMAGED: "says where (65)"}


def lines() -> list[str]:
    """The table for TOOLS.md."""
    out = ["| command | " + " | ".join(STATES) + " | test |", "|---|" + "---|" * (len(STATES) + 1)]
    for name, (_, _, codes) in TABLE.items():
        cells = " | ".join(_WORDS[codes[state]] for state in STATES)
        out.append(f"| `{name}` | {cells} | `test_cell[STATE-{name}]` |")
    return out
