"""BDAT (RFC 3030): a text in chunks of announced lengths, without dots to undo.

A chunk is read to its end whatever happens to it, for the client may have sent what follows it
already: what is not wanted is thrown away as it comes. Nothing is made ready for a length that is
only told.

Errors: none; `refusal` is the reply to a chunk that is not taken.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from omq.services.mail.smtp_data import Text
from omq.services.mail.smtp_input import Input

_ARGUMENT: Final = re.compile(r"([0-9]{1,20})( +LAST)?", re.IGNORECASE)


@dataclass(slots=True)
class Chunk:
    """What is still to come of one; without a text it is thrown away."""

    left: int
    last: bool
    text: Text | None = None
    refusal: str = ""

    def feed(self, came: Input) -> bool:
        """Take of this what belongs to the chunk; whether it has ended."""
        piece = came.take_up_to(self.left)
        self.left -= len(piece)
        if self.text is not None:
            self.text.feed_plain(piece, last=self.last and not self.left)
        return not self.left


def chunk_of(argument: str) -> Chunk | None:
    """The chunk that a command announces; None: it says none."""
    found = _ARGUMENT.fullmatch(argument)
    return None if found is None else Chunk(int(found[1]), found[2] is not None)
