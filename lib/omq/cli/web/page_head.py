"""What a page says above its figures: how the queue manager is, which alarms are raised, what the
page would show by now. It comes live too: a page that was opened an hour ago is believed.

Invariant: a page's own text and the live one are made by one function, so they cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from omq.base.amounts import number
from omq.base.names import POISON_NAME, escape
from omq.cli.look.cause import Severity
from omq.cli.watch.facts import ABSENT, LIVE, QueueFacts
from omq.cli.web.figures import manager_words
from omq.cli.web.rendering import when
from omq.cli.web.snapshots import Moment

_DEEPEST_MAX: Final = 10
_CAUSES_MAX: Final = 50
_TEXT_MAX: Final = 1024
_COLOURS: Final = {Severity.CRITICAL: "bad", Severity.WARNING: "warn", Severity.NOTE: "plain"}


def note(moment: Moment) -> tuple[str, str]:
    """What is to be known before a figure is believed, and its colour; empty: nothing."""
    if moment.problem:
        return f"Nothing can be looked at: {escape(moment.problem)}", "bad"
    told = escape(moment.facts.note) if moment.facts else ""
    if moment.state == LIVE:
        return (f"Take note: {told}", "warn") if told else ("", "plain")
    advice = ("Start it: omrc, or systemctl start omq.target. Its files: omqdump, omqlog."
              if moment.state == ABSENT else
              "What stands here is what its memory held. omstat -a says what to do.")
    return f"The queue manager {manager_words(moment)[0]}: {told} {advice}", "bad"


def alarms(moment: Moment) -> list[dict[str, Any]]:
    """Each raised alarm in texts, and its colour; critical ones first."""
    return [{"colour": "bad" if each.severity == "critical" else "warn",
             "severity": each.severity, "queue": each.queue,
             "text": f"{escape(each.alarm)}: {escape(each.why or number(each.value), _TEXT_MAX)}",
             "hints": [escape(hint, _TEXT_MAX) for hint in each.hints],
             "since": f"since {when(each.since_ns)}"}
            for each in moment.alarms]


def causes(moment: Moment) -> list[dict[str, Any]]:
    """Why something does not move, and what to do, as all tools say it
    (omq.cli.look.finding_causes); the gravest first."""
    found = moment.facts.causes.all() if moment.facts else []
    return [{"colour": _COLOURS[each.severity], "severity": each.severity.value,
             "queue": each.queue, "text": escape(each.text, _TEXT_MAX),
             "hints": [escape(hint, _TEXT_MAX) for hint in each.hints], "since": ""}
            for each in found[:_CAUSES_MAX]]


def causes_note(moment: Moment) -> str:
    """What the page says if there is none, or next to the first of many."""
    found = len(moment.facts.causes.all()) if moment.facts else 0
    if found > _CAUSES_MAX:
        return f"{found - _CAUSES_MAX:,} more are not shown here: the page of a queue has its own."
    return "" if found else "Nothing is seen that keeps messages from moving."


def alarms_note(moment: Moment) -> str:
    """What stands where there is no alarm."""
    if moment.alarms:
        return ""
    return "No alarm is raised." if moment.watched else (
        "Nobody looks for alarms: systemctl enable --now omq-alarms, or omq health now and then.")


def deepest(moment: Moment) -> list[QueueFacts]:
    """POISON if there is something on it, then the deepest, for the first page."""
    if moment.facts is None:
        return []
    return sorted((each for each in moment.facts.queues
                   if each.row.messages and (not each.row.special
                                             or each.row.name == POISON_NAME)),
                  key=lambda each: (each.row.name != POISON_NAME,
                                    -each.row.messages))[:_DEEPEST_MAX]


def unseen(moment: Moment, shown: Iterable[str]) -> str:
    """The deepest queues that the first page did not have when it was loaded."""
    known = set(shown)
    new = [each.row.name for each in deepest(moment) if each.row.name not in known]
    return f"Now also: {', '.join(new)}. Reload the page to see them." if new else ""


def live(moment: Moment, shown: Iterable[str] | None) -> dict[str, Any]:
    """All of it by the keys of the pages' elements; `shown`: the queues of the page, None: all."""
    text, colour = note(moment)
    return {"n:note": text, "n:note:colour": colour, "n:alarms": alarms(moment),
            "n:no alarm": alarms_note(moment),
            "n:causes": causes(moment), "n:no cause": causes_note(moment),
            "n:unseen": "" if shown is None else unseen(moment, shown)}
