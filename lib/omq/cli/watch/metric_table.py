"""The counters of the index as metrics: name, kind, unit, explanation, one row each.

Names and units are Prometheus' conventions: base units, `_total` for what only grows. A counter
that a newer index has and this table has not goes out as omq_manager_other{name}: nothing that
the manager tells is lost. UNTOLD are those whose value means nothing
outside the tables, or is part of another metric.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from omq.base.clock import NS_PER_S


class Row(NamedTuple):
    """`name` without the prefix, of a total without `_total`. `divisor`: to the base unit."""

    name: str
    help: str
    total: bool = False
    divisor: int = 1


ROWS: Final[dict[str, Row]] = {
    "puts": Row("messages_put", "Messages that were put, each counted once", total=True),
    "gives": Row("messages_handed_out", "Messages handed out to readers", total=True),
    "dones": Row("messages_settled", "Messages that readers settled: done, moved, deferred, "
                 "failed, returned", total=True),
    "expired": Row("messages_expired", "Messages that left a queue because their time was over",
                   total=True),
    "refused": Row("requests_refused", "Requests answered with an error", total=True),
    "garbage": Row("requests_garbage", "Requests that could not be a client's", total=True),
    "groups": Row("journal_blocks", "Groups of requests, each written as one block", total=True),
    "syncs": Row("journal_syncs", "Syncs of the journal", total=True),
    "journal_bytes": Row("journal_written_bytes", "Bytes written to the journal", total=True),
    "deaths": Row("reader_deaths", "Readers that died with a message in their hands", total=True),
    "paused_ms": Row("paused_seconds", "Time that clients waited for pool.writer to catch up",
                     total=True, divisor=1000),
    "units_committed": Row("units_committed", "Units of work that were committed", total=True),
    "units_backed_out": Row("units_backed_out", "Units of work that were backed out", total=True),
    "units_prepared": Row("units_prepared", "Units of work that were prepared", total=True),
    "duplicates": Row("duplicates", "Messages absorbed or refused: their queue has had their id",
                      total=True),
    "clock_steps": Row("clock_steps", "Times that the host's clock was set, as the manager saw it",
                       total=True),
    "events_dropped": Row("events_dropped", "Event messages that found no place on SYSTEM.EVENTS",
                          total=True),
    "units_in_doubt": Row("units_in_doubt", "Units of work in doubt: prepared, not ended"),
    "messages": Row("index_messages", "Messages in the index"),
    "entries": Row("index_entries", "Places of messages on queues in the index"),
    "messages_peak": Row("index_messages_peak", "Most messages at once since the start"),
    "active_peak": Row("active_messages_peak", "Most messages in readers' hands at once"),
    "clients": Row("clients", "Connected clients"),
    "group_waiting": Row("group_waiting_messages",
                         "Ready messages that wait for their turn in a group"),
    "keyed_ready": Row("limit_keyed_messages",
                       "Ready messages on queues with limit_by, by their keys"),
    "limit_keys": Row("limit_keys", "Keys of queues with limit_by that are in memory"),
    "limit_keys_forgotten": Row("limit_keys_forgotten", "Keys that were forgotten before their "
                                "rate was idle: limit_keys_max was reached", total=True),
    "barriers_waiting": Row("barriers_waiting", "Barriers that wait until others are done"),
    "barriers_ready": Row("barriers_ready", "Barriers of which all that they waited for was done",
                          total=True),
    "barriers_failed": Row("barriers_failed", "Barriers that went to a dead-letter queue: one that "
                           "they waited for failed, or their time was over", total=True),
    "quarantined": Row("quarantined_parts", "Damaged parts that the last start set aside"),
    "space_low": Row("disk_low", "1: too little disk space, 2: too few inodes; new messages are "
                     "refused"),
    "index_low": Row("index_low", "1: members' new messages are refused, 2: all new ones are"),
    "last_lsn": Row("journal_last_lsn", "Number of the last frame"),
    "durable_lsn": Row("journal_durable_lsn", "Number of the last frame that is on the disk"),
    "checkpoint_lsn": Row("checkpoint_lsn", "Number of the last frame that the pool has"),
    "lag_bytes": Row("checkpoint_lag_bytes", "Bytes of the journal that the pool does not have"),
    "journal_file": Row("journal_file_number", "Number of the journal file in use"),
    "checkpoint_time": Row("checkpoint_timestamp_seconds", "When the last checkpoint was taken",
                           divisor=NS_PER_S),
    "heartbeat": Row("manager_heartbeat_timestamp_seconds", "Last turn of the manager's main loop",
                     divisor=NS_PER_S),
    "started": Row("manager_start_time_seconds", "When the queue manager started",
                   divisor=NS_PER_S),
}
UNTOLD: Final = frozenset({
    "version", "next_qpool", "messages_high", "entries_high", "queues_high", "readers_high",
    "returned", "space_wanted", "sync_us", "frames", "boot_beat", "time_namespace"})
