"""How omshowlog shows an event: the original's lines for pid and errno."""

from __future__ import annotations

import pytest

from omq.base.event_log import Level
from omq.cli.look.event_lines import Logged
from omq.cli.look.omshowlog import lines


@pytest.mark.parametrize(("level", "shown"), [
    (Level.FATAL, True), (Level.ERROR, True), (Level.WARNING, False), (Level.REPORT, False)])
def test_errno_is_shown_at_level_error_and_worse(level: Level, *, shown: bool) -> None:
    each = Logged(0, level, "local.delivery", 5791, 1008, "Operation failed", {"errno": 9}, {})
    told = list(lines(each, {"local.delivery": "Local Delivery"}, with_pid=True))
    assert told[0].startswith(f"{level.name:<12}Local Delivery(local.delivery) ")
    assert told[1] == "[OM 1008] Operation failed"
    assert "Pid of logging process: 5791" in told
    assert ("Current errno value: 9" in told) == shown
