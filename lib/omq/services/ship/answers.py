"""What a store says when it does not do as asked: one line for people, and whether it refuses.

obstore's errors quote the store's whole reply and say how long it took; a store says its reason as
an XML document, at the end of that. Here it becomes `403 Forbidden, InvalidAccessKeyId: The access
key ID ...`: the same text for the same reason, so that whoever tries again says it once. Whatever a
store sends is cut and has nothing that a terminal would obey.
"""

from __future__ import annotations

import re
from typing import Final

from omq.base.errors import PlaceRefused, PlaceUnavailable

_TEXT_MAX: Final = 300
_STATUS: Final = re.compile(r"status code: (\d{3}[ A-Za-z]{0,40})")
_CODE: Final = re.compile(r"<Code>([^<]{1,80})</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<\r\n]{1,200})")
_TIME: Final = re.compile(r" in \d[\d.]*(?:ns|µs|ms|s)\b")
_METADATA: Final = re.compile(r"/latest/(?:api/token|meta-data)|/metadata/identity|"
                              r"metadata\.google\.internal")
_REFUSALS: Final = ("401", "403")
_NO_CREDENTIALS: Final = ("the environment has no credentials, and this host no metadata service "
                          "that would give some")


def told(url: str, said: str, *, refused: bool = False) -> PlaceUnavailable:
    """The error for what obstore says. `refused`: it says itself that it is one."""
    text = said.partition("Debug source:")[0]
    if _METADATA.search(text):
        return PlaceRefused(url=url, reason=_NO_CREDENTIALS)
    status, code, message = (found[1].strip() if (found := each.search(text)) else ""
                             for each in (_STATUS, _CODE, _MESSAGE))
    message = message.rstrip(".")
    reason = ", ".join(filter(None, (status, ": ".join(filter(None, (code, message)))))) or (
        _TIME.sub("", " ".join(text.split())))
    reason = "".join(each if each.isprintable() else "?" for each in reason)[:_TEXT_MAX]
    kind = PlaceRefused if refused or status.startswith(_REFUSALS) else PlaceUnavailable
    return kind(url=url, reason=reason)
