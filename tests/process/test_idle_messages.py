"""What messages cost that nobody touches: as WALKTHROUGHS says it."""

from __future__ import annotations

import re
from pathlib import Path

from omq.base.limits import QUEUES_MAX
from omq.base.settings import DEFAULTS
from omq.core.index.view import IndexView
from omq.format.index import IndexLayout
from tests.process.instance import MANAGER, WRITER, Instance
from tests.tidy.tree import ROOT

MESSAGES = 8000
BATCH = 100
OWN_BYTES_MAX = 400
"""Of the manager's own memory for a message: three times what is measured, for pages in between."""


def _private_bytes(pid: int) -> int:
    """Memory that this process shares with nobody (proc(5): smaps_rollup)."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(kib) for kib in re.findall(r"^Private_\w+: +(\d+) kB", text, re.MULTILINE)) << 10


def test_what_an_idle_message_costs(omq_instance: Instance) -> None:
    """In the manager's own memory, between two equal steps; in the index, by its layout."""
    made = omq_instance
    child = made.start(WRITER, MANAGER)
    with made.connect() as c:
        def put() -> int:
            for _ in range(MESSAGES // BATCH):
                c.put_many("A", [b"x" * 100] * BATCH)
            return _private_bytes(child.pid)
        first = put()
        assert (put() - first) / MESSAGES < OWN_BYTES_MAX
        with IndexView.attach(made.paths) as view:
            assert view.header is not None
            assert view.header.layout().bytes_per_message < 200
        with made.connect("clears") as other:
            other.queues.clear("A")


def test_the_document_has_the_figures_of_the_layout() -> None:
    text = (ROOT / "lib/omq/docs/WALKTHROUGHS.md").read_text(encoding="utf-8")
    layout, wider = (IndexLayout.of(DEFAULTS.messages_max, DEFAULTS.queue_entries_max, queues, 1)
                     for queues in (QUEUES_MAX, 2 * QUEUES_MAX))
    assert f"{layout.bytes_per_message:.0f} bytes in the index" in text
    a_queue = (wider.size - layout.size) / QUEUES_MAX
    assert f"{a_queue / 1000:.1f} kB a queue" in text
