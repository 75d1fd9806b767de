"""What frames say of queues: their names by number, and what those are that were made at run time.

Each frame says the whole (a name, a definition, that it is gone), so doing it a second time, or
beginning too early, ends in the same. Errors: Unusable; nothing has changed then.
"""

from __future__ import annotations

from omq.core.redo.changes import Frame, Unusable, checked
from omq.format.definition import name_in
from omq.format.frame_rules import BY_NUMBER, About
from omq.format.journal import At


def note_queue(queues: dict[int, str], definitions: dict[str, str], frame: Frame, raw: bytes
               ) -> None:
    """A frame about a queue, with its payload."""
    rule, text = BY_NUMBER[frame[At.TYPE]], checked(frame, raw)
    if not text or not text.isascii() or b"\0" in text:
        raise Unusable("no name of a queue")
    told = text.decode("ascii")
    if rule.about is About.QUEUE:
        queues[frame[At.QUEUE]] = told
    elif rule.forgets:
        definitions.pop(told, None)
        queues.pop(frame[At.QUEUE], None)  # 0: it has no number, or keeps it
    elif name := name_in(told):
        definitions[name] = told
    else:
        raise Unusable("no definition of a queue")
