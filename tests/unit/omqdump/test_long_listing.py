"""A listing of a million messages: every line, the same lines as short ones, in constant memory."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from omq.base.paths import SpoolPaths
from omq.core.index.tables import Tables
from omq.core.index.view import IndexView
from omq.format.index import Counter, QueueFlag
from omq.storage.spool import SpoolInfo
from omqtools.omqdump.listings import json_lines, table_lines
from omqtools.omqdump.render import entry_table
from tests.unit.omqdump import world

MILLION = 1_000_000
GROWTH_KIB = 128 * 1024
QUEUE = 3


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IndexView]:
    """A million messages on one queue, in every state and priority."""
    t = Tables.private(MILLION, MILLION)
    n = np.arange(MILLION)
    v = t.v
    v["m_qpool"][:], v["m_offset"][:] = n + 1, 4096 + n % 1000 * 700
    v["m_location"][:], v["m_flags"][:], v["m_size"][:] = 1 + n // 1000, n % 7 != 0, n % 5000
    v["m_parts"][:] = 1
    v["e_message"][:], v["e_queue"][:], v["e_state"][:] = n, QUEUE, 1 + n % 4
    v["e_sequence"][:], v["e_priority"][:], v["e_attempts"][:] = n + 1, n % 10, n % 3
    v["e_submitted"][:] = 1_700_000_000 * 10**9 + n * 10**7
    t.counters[Counter.MESSAGES_HIGH] = t.counters[Counter.ENTRIES_HIGH] = MILLION
    t.q_flags[QUEUE] = QueueFlag.IN_USE
    t.set_queue_name(QUEUE, "A")
    t.counters[Counter.QUEUES_HIGH] = QUEUE + 1
    with IndexView.of(t, SpoolPaths(tmp_path_factory.mktemp("none"))) as made:
        yield made
    t.release()


def test_a_million_lines_in_constant_memory(view: IndexView) -> None:
    lines = table_lines(view, [QUEUE])
    first = list(islice(lines, 1 + 100_000))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    count = sum(1 for _ in lines) + len(first) - 1
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert count == MILLION
    assert growth < GROWTH_KIB
    assert first[1].split()[:3] == ["10", "9", "active"]
    assert max(map(len, first)) <= 80
    assert first[:3000] == list(entry_table(view.entries("A", 2999)))


def test_the_fast_lines_are_the_plain_ones(info: SpoolInfo, tmp_path: Path) -> None:
    with world.indexed(info) as tables:
        world.fill(tables)
        with IndexView.attach(info.paths) as small:
            for queue in small.queues():
                assert list(table_lines(small, [queue.number])) == list(
                    entry_table(small.entries(queue.name)))
            assert len(list(json_lines(small, small.raw_entries()))) == 9
