"""Which readers the report shows as bars, and what is next to each."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd

from omqtools.omqspark.topmost import Queues

READERS_SHOWN: Final = 30
FEW_MESSAGES: Final = 10
"""Of a reader: of so few the share of its time says nothing, one message is always 100 %."""


def busiest(table: pd.DataFrame) -> pd.DataFrame:
    """The readers that are shown: of those that did enough to be judged the busiest, then those
    that did most."""
    enough = table["messages"] >= FEW_MESSAGES
    return table.assign(enough=enough, share=table["busy_share"].where(enough, 0.0)).sort_values(
        ["enough", "share", "messages"], ascending=False).drop(columns="share").head(READERS_SHOWN)


def reader_said(row: Any) -> str:
    """What stands at a reader's bar."""
    died = f", died {row.deaths} times" if row.deaths else ""
    few = "" if row.enough else ": too few to say how busy it was"
    return f"{row.messages:,} message{'s' * (row.messages != 1)}{few}, {row.failed} failed{died}"


def reader_label(row: Any, queues: Queues) -> str:
    """A reader's name; the client tells apart who had one pid, the epoch who had one client."""
    client, epoch = getattr(row, "reader", None), getattr(row, "epoch", None)
    which = f" ({client}, epoch {epoch})" if client and epoch else f" ({client})" if client else ""
    return f"{queues.short(row.queue)}  pid {row.reader_pid}{which}"


def by_reader(table: pd.DataFrame) -> pd.DataFrame:
    """Failed attempts and poisoned messages of those with most."""
    sums = table.groupby(["queue", "reader_pid"])[["failed", "poisoned"]].sum().reset_index()
    return sums.sort_values("failed", ascending=False).head(20)
