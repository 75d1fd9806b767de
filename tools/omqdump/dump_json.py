"""The text dumps (option t) as JSON, an object a block: for programs that would parse the text.

    t m   {"section": "pool", ...}  first {"version", "total_files"}, then an object a record, its
          queue parts in "queues"
    t q   {"section": "active" | "messages" | "queues" | "readers", ...}; a message that waits has
          "queue", a queue its three "load_averages"

Keys are the words of the text in lower case with `_` for blanks: a contract, keys are only added.
Numbers are numbers, 0x... too; NONE is null; where the text has seconds and the time they mean, the
seconds; all else stays as it is. Memory does not depend on the number of messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from omq.core.look.text_dump import RULE

_SECTIONS: Final = (("==Active Messages==", "active"), ("==Known messages==", "messages"),
                    ("== Queues ==", "queues"), ("==Queue Readers==", "readers"))
_LOAD: Final = "+++Load Average:"
_MESSAGE: Final = "+++++"
_ENDS: Final = ("HHHHHHHH", "====", "----->>>")
_NUMBER: Final = re.compile(r"-?[0-9]{1,20}")
_HEX: Final = re.compile(r"0x[0-9A-Fa-f]{1,16}")
_SECONDS: Final = re.compile(r"([0-9]{1,12}) [0-9]{2}\.[0-9]{2}\.[0-9]{2} [0-9:]{8}")


def json_lines(lines: Iterable[str], section: str = "") -> Iterator[str]:
    """A line an object. `section`: of a dump that names none (the pool's)."""
    found: dict[str, Any] = {}
    part, queue = found, ""
    for line in lines:
        heading = next((name for mark, name in _SECTIONS if mark in line), "")
        if heading or line in (RULE, _MESSAGE) or line.startswith(_ENDS):
            if found:
                yield json.dumps({"section": section, **found})
            section = heading or section
            found = {"queue": queue} if line == _MESSAGE else {}
            part = found
        elif line == _LOAD:
            part = {}
            found.setdefault("load_averages", []).append(part)
        elif "=" in line:
            name, _, value = line.partition("=")
            key = name.strip().lower().replace(" ", "_").replace("/", "_")
            if section == "pool" and key == "queue":
                part = {}
                found.setdefault("queues", []).append(part)
            part[key] = _value(value.strip())
            if section == "queues" and key == "queue_name":
                queue = value.strip()
    if found:
        yield json.dumps({"section": section, **found})


def _value(text: str) -> Any:
    if text == "NONE":
        return None
    if _NUMBER.fullmatch(text):
        return int(text)
    if _HEX.fullmatch(text):
        return int(text, 16)
    match = _SECONDS.fullmatch(text)
    return int(match[1]) if match else text
