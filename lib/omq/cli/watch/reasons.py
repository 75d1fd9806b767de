"""Why an alarm is at its threshold, and what to do: the causes that tools show
(omq.cli.look.finding_causes), or where a measure has none, what was counted and the command that
shows it.

Invariant: each measure has a sentence here, so nobody is ever told that something "is 1".
"""

from __future__ import annotations

from typing import Final

from omq.base.amounts import duration
from omq.cli.look.cause import Cause
from omq.cli.watch.facts import Facts

_CODES: Final[dict[str, tuple[str, ...]]] = {
    "manager_down": ("no_manager", "manager_stopped", "hung"),
    "configuration_wrong": ("configuration",),
    "services_down": ("service_down", "service_stopped", "queue_missing", "no_manager",
                      "manager_stopped", "hung"),
    "room_refused": ("disk", "index", "inodes"),
    "disk_used_percent": ("disk",),
    "inodes_used_percent": ("inodes",),
    "in_doubt": ("units_in_doubt",),
    "ship_trouble": ("not_shipped",),
}
"""The causes in the instance that explain a measure."""
_OF_QUEUE: Final[dict[str, tuple[str, ...]]] = {
    "deferred": ("deferred", "put_off"), "held": ("held",), "unread": ("no_reader",),
    "full_percent": ("full",), "put_off": ()}
"""Of a queue; others are explained by whatever holds it up."""
_SENTENCES: Final[dict[str, tuple[str, str]]] = {
    "manager_down": ("the queue manager does not work", "omstat -a shows what to do"),
    "configuration_wrong": ("the configuration cannot be read", "omq conf names file and line"),
    "services_down": ("services that should run: {n} do not", "omstat -a shows which"),
    "restarts": ("starts after a death, of all services: {n}", "omshowlog -l 3 has the reasons"),
    "poison": ("messages on POISON: {n}", "omqwhy POISON; omqwhy ID has the evidence of one"),
    "index_percent": ("{n} % of the places in the index are used",
                      "omqshape shows which queue has them; messages_max of omq.conf"),
    "room_refused": ("new messages are refused for want of room", "omstat -a shows what is short"),
    "disk_used_percent": ("{n} % of the disk is used", "df -h on the spool"),
    "inodes_used_percent": ("{n} % of the inodes of the file system are used",
                            "df -i on the spool"),
    "checkpoint_lag": ("a restart would replay {n} frames: pool.writer is behind",
                       "omstat -a; omshowlog -s pool.writer"),
    "in_doubt": ("units of work in doubt: {n}", "omq units lists and ends them"),
    "archive_pending": ("retired journal files that wait for omq-archive: {n}",
                        "omq-archive runs from a timer: systemctl list-timers"),
    "quarantined": ("damaged parts that the last start set aside: {n}",
                    "omqcheck; RECOVERY says what to do with quarantine/"),
    "standbys_away": ("standbys that do not follow: {n}",
                      "omq standby status names them; omq standby forget is for one that is gone"),
    "standbys_differ": ("standbys whose queues.conf is not that of this primary: {n}",
                        "omq standby status names the queues; make the files alike, then restart "
                        "omq-standby there"),
    "standby_lag_s": ("a standby lacks what was acknowledged {age} ago",
                      "omq standby status; look at its disk and the line to it"),
    "unprotected": ("fewer standbys answer than standby_sync wants, or the lease is over",
                    "omq standby status says which, and whether replies wait or go on alone"),
    "lease_trouble": ("this member could not take part in a failover",
                      "omq standby status says why: lease"),
    "ship_lag_s": ("what was acknowledged {age} ago is not in the object store",
                   "omq ship status; look at the place and the line to it"),
    "ship_trouble": ("the journal is not shipped as it should be", "omq ship status says why"),
    "messages": ("messages: {n}", "omqwhy {queue}"),
    "ready": ("ready messages: {n}", "omqwhy {queue}"),
    "deferred": ("deferred messages: {n}", "omqwhy {queue}"),
    "put_off": ("messages that a reader could not finish, and put off: {n}",
                "omqwhy {queue}; omqwhy ID has the reason of one"),
    "held": ("messages that an operator holds: {n}", "omqwhy {queue}"),
    "oldest_s": ("its oldest message has been there for {age}", "omqwhy {queue}"),
    "full_percent": ("{n} % of max_depth are on it", "omqadvise; max_depth in queues.conf"),
    "unread": ("nobody reads it, and {n} messages are ready", "omqwhy {queue}"),
    "stuck": ("ready messages that do not move: {n}", "omqwhy {queue}"),
}
_CAUSES_MAX: Final = 3


def why(measure: str, queue: str, value: float, facts: Facts) -> tuple[str, tuple[str, ...]]:
    """(what holds it up, what to do)."""
    sentence, hint = _SENTENCES[measure]
    told = sentence.format(n=f"{value:,.0f}", age=duration(value))
    found = causes(measure, queue, facts)
    if not found:
        return told, (hint.format(queue=queue),)
    more = f"; and {len(found) - _CAUSES_MAX} more" if len(found) > _CAUSES_MAX else ""
    text = "; ".join(each.text for each in found[:_CAUSES_MAX]) + more
    lead = f"{told}: " if queue or measure == "services_down" else ""
    return f"{lead}{text}", tuple(dict.fromkeys(
        hint for each in found[:_CAUSES_MAX] for hint in each.hints))


def causes(measure: str, queue: str, facts: Facts) -> list[Cause]:
    """Those that explain it."""
    if not queue:
        return facts.causes.with_code(_CODES.get(measure, ()))
    wanted = _OF_QUEUE.get(measure)
    return [each for each in facts.causes.queues.get(queue, ())
            if wanted is None or each.code in wanted]
