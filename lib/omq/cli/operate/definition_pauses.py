"""Keys of queues that a file of definitions pauses or resumes (`definition_plan`).

`"paused": ["tenant7"]` of a queue are all keys of it that are paused: others are resumed. A queue
that does not say it keeps what is paused here. Errors: BadRequest, BadDefinition.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from omq.base.errors import BadRequest
from omq.base.names import escape
from omq.cli.operate.definition_step import PAUSED, RESUMED, SAME, Step
from omq.core.engine.queue_judge import judge_key
from omq.format.definition import HOLDING, Kind
from omq.ipc.client.queues import QueueCommands

_HOLDING = frozenset(each.value for each in HOLDING)


def pause_steps(record: Mapping[str, Any], there: Collection[str], queues: QueueCommands,
                reason: str) -> list[Step]:
    """Of one queue of the file; `there`: its keys that are paused here."""
    name, wanted = record["name"], record.get("paused")
    if wanted is None:
        return []
    if not isinstance(wanted, list) or not all(isinstance(key, str) for key in wanted):
        raise BadRequest(reason="paused is a list of texts")
    if wanted and record.get("kind", Kind.LOCAL.value) not in _HOLDING:
        raise BadRequest(reason="only keys of a queue that holds messages are paused")
    for key in wanted:
        judge_key(name, key)

    def pause(key: str) -> Step:
        return Step("pause", _shown(name, key), PAUSED,
                    lambda: queues.pause(name, key, keyed=False, reason=reason))

    def resume(key: str) -> Step:
        return Step("pause", _shown(name, key), RESUMED,
                    lambda: queues.resume(name, key, reason=reason))

    return [pause(key) if key not in there else resume(key) if key not in wanted
            else Step("pause", _shown(name, key), SAME)
            for key in sorted({*wanted, *there})]


def _shown(name: str, key: str) -> str:
    return f"{name} key '{escape(key)}'"
