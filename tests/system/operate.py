"""The production section of OPERATE.md: its blocks of commands, and the commands in its text."""

from __future__ import annotations

import re
from typing import Final

from tests.tidy.tree import ROOT

SECTION: Final = (ROOT / "lib/omq/docs/OPERATE.md").read_text(encoding="utf-8").split(
    "\n## Production: under systemd\n")[1].split("\n## ")[0]
_BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)
INSTALL, OWN, DAILY = (text for language, text in _BLOCKS if language == "bash")
assert len(_BLOCKS) == 3, "a block of the production section that no test follows"

NEW_PLACE, SET_UP = INSTALL.split("/opt/omq/bin/omq setup\n")
"""What makes /opt/omq (once for all tests), and what comes behind `omq setup`."""
SETUP: Final = "/opt/omq/bin/omq setup\n"

_TEXT: Final = " ".join(re.sub(r"```.*?```", "", SECTION, flags=re.DOTALL).split())
COMMANDS: Final = frozenset(re.findall(
    r"`((?:make|omq|om[a-z]+|systemctl|systemd-analyze|journalctl) [^`]+)`", _TEXT))
"""What the text tells an operator to type, beside the blocks."""
