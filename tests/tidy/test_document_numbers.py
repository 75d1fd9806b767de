"""Sentences of START, OPERATE and README that name a default or a setting of a unit: as it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from omq.base.config import QueueConf
from omq.base.settings import Settings
from tests.tidy.tree import ROOT

DOCS: Final = ROOT / "lib/omq/docs"
START, OPERATE = DOCS / "START.md", DOCS / "OPERATE.md"
SETTINGS: Final = Settings()
QUEUE: Final = QueueConf("A")
WORDS: Final = {"second": 1, "third": 3, "five": 5, "eight": 8, "ten": 10, "fifth": 5}


def of_unit(name: str, key: str) -> int:
    """A number in a unit's file."""
    found = re.search(rf"^{key}=?\s*(\d+)", (ROOT / "units" / name).read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


SAID: Final = (
    (START, r"large body \(over (\d+) KiB\)", SETTINGS.container_threshold_bytes // 1024),
    (START, r"the (\w+) failed attempt puts it on\s+POISON", QUEUE.attempts_max),
    (START, r"it is redelivered after (\d+) s", QUEUE.death_delay_s),
    (OPERATE, r"After (\w+) starts in", of_unit("include/start-limit", "StartLimitBurst")),
    (OPERATE, r"starts in\s+(\w+) minutes", of_unit("include/start-limit",
                                                    "StartLimitIntervalSec") // 60),
    (OPERATE, r"aborts a daemon that\s+hangs after (\d+) s", of_unit("include/daemon",
                                                                     "WatchdogSec")),
    (OPERATE, r"aborts a daemon that\s+hangs after (\d+) s", SETTINGS.watchdog_s),
    (OPERATE, r"a killed daemon is restarted after a (\w+)", of_unit("include/daemon",
                                                                     "RestartSec")),
    (OPERATE, r"`/etc/logrotate.d/omq` keeps (\w+) weeks", of_unit("logrotate.d/omq",
                                                                   r"\s*rotate")),
    (OPERATE, r"in at most a (\w+) of the file system", 100 // SETTINGS.archive_disk_percent),
    (OPERATE, r"of the file system and for (\d+) days", SETTINGS.archive_days),
)
"""Document, its words, and what they must say."""


@pytest.mark.parametrize(("page", "words", "value"), SAID,
                         ids=[f"{page.name} {number}" for number, (page, *_) in enumerate(SAID)])
def test_a_number_in_a_sentence_is_the_one_in_force(page: Path, words: str, value: int) -> None:
    found = re.search(words, page.read_text(encoding="utf-8"))
    assert found is not None, f"{page.name} no longer says this: change the row, too"
    said = found[1]
    assert (WORDS[said] if said in WORDS else int(said)) == value
