"""omq.conf: every key with its default, its allowed range and its reason, in ONE table.

The table is the dataclass below, with the mail keys of omq.base.settings_mail: a field is a key,
its name ends in the unit, and its metadata holds section, range and reason. `Settings()` is the
default configuration. conf/omq.conf is checked against this table by tests/tidy and printed from it
by `python -m omq.base.settings_file`.

Errors: ConfigError with file, line, key and what is allowed (omq.base.settings_file, which reads
it).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

from omq.base.limits import BATCH_MAX, BODY_BYTES_MAX, DEDUPE_CLIENTS_MAX, GIB, KIB, MIB
from omq.base.settings_key import METADATA, YEAR_S, Key
from omq.base.settings_key import choice as _choice
from omq.base.settings_key import flag as _flag
from omq.base.settings_key import number as _number
from omq.base.settings_key import text as _text
from omq.base.settings_mail import MailSettings

__all__ = ["DEFAULTS", "KEYS", "YEAR_S", "Key", "Settings"]

_GROUP: Final = r"([A-Za-z0-9_][A-Za-z0-9_.-]{0,31})?"
_GROUP_RULE: Final = "the name or number of a group of this host, or nothing"
ALL_EVENTS: Final = ("depth_high", "depth_low", "full", "put_inhibited", "get_inhibited", "poison",
                     "expired", "oldest_age", "authority", "service_aborted", "in_doubt",
                     "disk_low", "disk_free", "alarm_raised", "alarm_cleared")
"""Event messages that there are."""
_EVENTS: Final = rf"(({'|'.join((*ALL_EVENTS, 'all'))})( |\Z))*"
_LEVELS: Final = ("FATAL", "ERROR", "WARNING", "REPORT", "TRACE")


@dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class Settings(MailSettings):
    """One field per key of omq.conf; see the metadata for what each is for. Its functions are
    written out: those that dataclass makes of so many fields take each process 13 ms to compile."""

    def __init__(self, **given: Any) -> None:
        for key, default in _DEFAULTS:
            object.__setattr__(self, key, given.pop(key, default))
        if given:
            raise TypeError(f"not a key of omq.conf: {', '.join(given)}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Settings) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, key) for key, _ in _DEFAULTS)

    # fmt: off
    journal_file_bytes: int = _number("journal", 64 * MIB, 256 * KIB, 4 * GIB,
        "size of one journal file, made of real zeros beforehand; larger ones rotate less often; "
        "at least block_bytes_max and two pages")
    journal_page_bytes: int = _number("journal", 4096, 512, 64 * KIB,
        "a block takes whole pages (a power of two), so that an append cannot tear what is on disk")
    block_bytes_max: int = _number("journal", 4 * MIB, 64 * KIB, 64 * MIB,
        "most bytes of one group commit: bounds the time until the first of the group is answered; "
        "at least container_threshold_bytes and 68 KiB")
    block_frames_max: int = _number("journal", 16384, 2 * BATCH_MAX, 65535,
        "most operations in one group commit, for the same reason")
    journal_files_kept: int = _number("journal", 4, 0, 1000,
        "journal files older than the checkpoint that are kept for reading bodies, before they are "
        "retired")
    standby_files_kept: int = _number("journal", 160, 0, 100_000,
        "journal files that are kept for a standby that is away or slow; one that falls further "
        "behind needs a new base copy; none are kept when the disk runs short")
    archive: str = _choice("journal", "keep", ("keep", "delete"),
        "what happens to a retired journal file: kept in archive/ for analytics, or deleted")

    archive_level: int = _number("archive", 3, 1, 19,
        "how hard archive files are compressed (zstd): higher is smaller and slower to make")
    archive_days: int = _number("archive", 90, 0, 36_500,
        "archive files older than this are removed; 0: never")
    archive_disk_percent: int = _number("archive", 20, 0, 90,
        "the oldest archive files are removed while all of them together take more than this part "
        "of the file system; 0: only a disk that runs full is a limit, where history goes before a "
        "put is refused")
    archive_bytes_max: int = _number("archive", 0, 0, 1024 * 1024 * GIB,
        "the same limit in bytes; the smaller of the two counts; 0: archive_disk_percent alone "
        "counts")
    archive_bodies_days: int = _number("archive", 36_500, 0, 36_500,
        "bodies older than this are removed from the archive, which analytics does without; 0: "
        "they are never kept")
    archive_interval_s: int = _number("archive", 600, 0, 86_400,
        "how often omrc --embedded runs omq-archive while retired journal files wait for it; 0: "
        "never; under systemd omq-archive.timer decides")

    checkpoint_interval_s: int = _number("pool", 10, 1, 3600,
        "longest time between checkpoints: bounds the replay of a restart")
    checkpoint_journal_bytes_max: int = _number("pool", 64 * MIB, 64 * KIB, 16 * GIB,
        "a checkpoint is also taken after this much journal, for the same reason")
    checkpoint_lag_frames_max: int = _number("pool", 1_000_000, 0, 1_000_000_000,
        "clients are slowed down when the checkpoint is more than this many frames behind (never "
        "below two checkpoint_journal_bytes_max); 0: never")
    checkpoint_lag_bytes_max: int = _number("pool", 512 * MIB, 0, 1024 * GIB,
        "the same in bytes of the journal, for large messages (never below two "
        "checkpoint_journal_bytes_max and two journal files); 0: never")
    pool_poll_ms: int = _number("pool", 100, 1, 10_000,
        "how often pool.writer looks at the queue manager; a quarter as often while that is idle")

    store_file_bytes: int = _number("store", 64 * MIB, 64 * KIB, 4 * GIB,
        "size at which a store file is closed and the next one begun")
    store_compact_percent: int = _number("store", 50, 1, 90,
        "a store file is rewritten and removed when less than this part of it is live")
    volatile_file_bytes: int = _number("store", 64 * MIB, 64 * KIB, 4 * GIB,
        "the same for bodies of non-persistent messages")
    container_threshold_bytes: int = _number("store", 256 * KIB, 4 * KIB, 32 * MIB,
        "a body larger than this gets a file of its own instead of going through the journal")
    recycled_bytes_max: int = _number("store", 256 * MIB, 0, 1024 * GIB,
        "containers of bodies that have ended rest for a minute, so that the next bodies are "
        "written over them: so many bytes at most; 0: each is removed at once")
    body_bytes_max: int = _number("store", 64 * MIB, 1 * KIB, BODY_BYTES_MAX,
        "largest body accepted on any queue; readers hold it in memory")
    disk_reserve_bytes: int = _number("store", 128 * MIB, 0, 1024 * GIB,
        "when less space is free, puts are refused, so that done, move and delete can still be "
        "written; never less than two journal files, 0: no reserve, and a full disk may stop all "
        "until somebody makes room. From two journal files above that, history is removed and "
        "producers are slowed down. A new instance does not start where this and two journal files "
        "do not fit. For full speed a disk has room for this, journal_files_kept and four more "
        "journal files, and what is queued; an hour of 100 messages of 1 KiB a second writes 4 GiB "
        "of journal one by one, three pages each, 0.7 GiB in batches of 20")
    inode_reserve: int = _number("store", 256, 0, 1_000_000_000,
        "the same for inodes, on file systems that count them; at most a tenth of all inodes")
    disk_check_interval_s: int = _number("store", 1, 1, 3600,
        "how often the free space is checked, which is one quick call")

    messages_max: int = _number("index", 1_000_000, 100, 50_000_000,
        "most messages in the spool: the size of the index's message table, about 180 bytes for "
        "each, allocated at the start")
    queue_entries_max: int = _number("index", 1_250_000, 100, 100_000_000,
        "size of the index's entry table, in which a message has one entry for each queue that it "
        "is on; allocated at the start")
    messages_total_max: int = _number("index", 0, 0, 50_000_000,
        "a lower limit on messages, which a reload may change; 0: only messages_max counts")
    index_reserve_percent: int = _number("index", 2, 0, 50,
        "part of the index that is kept free from new messages of users other than the spool's "
        "owner and root; half of it is kept free from the owner's too, for moves: a flood ends "
        "nobody's work")

    failures_known_max: int = _number("index", 100_000, 0, 50_000_000,
        "the queue manager remembers for so many messages on dead-letter queues why they failed, "
        "at some 400 bytes each; of any more only the queue that they came from is known")

    queues_temporary_max: int = _number("index", 500, 0, 900,
        "most temporary queues of all clients together: the table has room for 999 queues, and "
        "those of queues.conf need theirs")
    queues_temporary_per_client: int = _number("index", 16, 0, 900,
        "most temporary queues of one client; a requester needs one")

    clients_group: str = _text("ipc", "", _GROUP, _GROUP_RULE,
        "who may connect, besides the owner and root; empty: the group of the spool directory")
    operators_group: str = _text("ipc", "", _GROUP, _GROUP_RULE,
        "who may look at the index (omqdump, omtop, omqwhy); empty: the owner and root alone")
    clients_max: int = _number("ipc", 500, 1, 10_000,
        "most processes that are connected; each costs a channel segment, a semaphore and up to "
        "four descriptors")
    clients_per_uid_max: int = _number("ipc", 100, 1, 10_000,
        "most clients of one user other than the spool's owner and root; each takes channel_bytes")
    clients_reserved: int = _number("ipc", 100, 0, 5000,
        "places of clients_max that only the spool's owner and root may take, at most half of it: "
        "daemons and an operator find one whatever all others do")
    callers_max: int = _number("ipc", 64, 1, 10_000,
        "most connections of all users together that have not registered yet; the owner and root "
        "have as many of their own")
    callers_per_uid_max: int = _number("ipc", 16, 1, 10_000,
        "the same for one user; registering takes a moment, so few are ever open at once")
    register_timeout_s: int = _number("ipc", 10, 1, 600,
        "a connection that has not registered after this time is closed")
    bad_lines_max: int = _number("ipc", 8, 0, 1000,
        "a connection is closed after this many lines in a row that are not a question, or ask "
        "without having registered")
    uid_turn_us: int = _number("ipc", 2000, 100, 1_000_000,
        "how much time one user's connections may take in a group before it is the others' turn; "
        "after five such shares of all users together the request queue has its turn")
    channel_bytes: int = _number("ipc", 1 * MIB, 64 * KIB, 64 * MIB,
        "shared memory of one client, into which the bodies and the batch of one request must fit")
    batch_messages_max: int = _number("ipc", BATCH_MAX, 1, BATCH_MAX,
        "most messages in one put_many or one next")
    request_queue_bytes: int = _number("ipc", 0, 0, 64 * MIB,
        "capacity of the request queue; 0: the kernel's msgmnb, which only root may exceed")
    connect_timeout_s: int = _number("ipc", 5, 1, 600,
        "how long connecting may take; the manager answers between two group commits")
    reconnect_grace_s: int = _number("ipc", 30, 0, 3600,
        "how long a client tries to reach a restarted manager; recovery usually takes less")
    dedupe_clients_max: int = _number("ipc", 4096, 16, DEDUPE_CLIENTS_MAX,
        "clients whose last request is remembered, so that a retry is not carried out twice")
    unit_messages_max: int = _number("ipc", 10_000, 1, 65535,
        "most messages that a unit of work takes and puts; block_frames_max limits it too, for a "
        "unit is committed in one block")
    unit_bytes_max: int = _number("ipc", 32 * MIB, 64 * KIB, 1 * GIB,
        "most bytes of a unit's frames and bodies in the journal, at most half of "
        "journal_file_bytes; large bodies do not count, for they have files of their own")
    units_bytes_max: int = _number("ipc", 256 * MIB, 64 * KIB, 16 * GIB,
        "memory of the queue manager for what clients have staged in units that are not committed "
        "yet; one user other than the owner and root may take half of it")
    units_in_doubt_max: int = _number("ipc", 1000, 1, 100_000,
        "most units of work in doubt (prepared and not ended); one user other than the owner and "
        "root may have half of them, so that no user shuts out the others")
    unit_in_doubt_warn_s: int = _number("ipc", 600, 1, 86400 * 365,
        "a unit of work that is in doubt this long raises an event: its messages wait for "
        "a decision")
    reader_wait_s: int = _number("ipc", 30, 1, 3600,
        "how long a reader without messages waits before it asks again; its idle work is done then")

    worker_time_limit_s: int = _number("daemons", 0, 0, 7 * 86_400,
        "a function of omq worker is interrupted after this time, and its message has failed; 0: "
        "no limit, for only you know how long a task may take")
    worker_kill_after_s: int = _number("daemons", 5, 1, 3600,
        "time that it has to end then; a function that still hangs loses its process, and one "
        "attempt is counted")
    reader_refused_retry_s: int = _number("daemons", 10, 1, 86400,
        "how long a message is put off whose next queue is full or inhibited, or takes no body of "
        "its length")
    idel_attempts_max: int = _number("daemons", 12, 3, 200,
        "attempts to delete a message's container, with pauses that grow to an hour (12 take some "
        "40 minutes); then it is set aside: quarantine/ gets a note, there is an event, and the "
        "file stays")
    reader_rest_ms: int = _number("daemons", 50, 0, 10_000,
        "how long an auxiliary reader pauses after a batch that was not full: the main reader "
        "takes few messages better, in larger batches; what the auxiliary one leaves waits no "
        "longer than this")
    load_sample_period_s: int = _number("daemons", 5, 1, 60,
        "how often the load averages take a sample (5 seconds in HP OpenMail)")
    manager_nice: int = _number("daemons", 0, -20, 0,
        "nice value of queue.manager, if it may set it; below 0 where other work keeps the machine "
        "busy")
    watchdog_s: int = _number("daemons", 30, 0, 3600,
        "a daemon whose main loop hangs this long is aborted and restarted; 0: never")
    start_timeout_s: int = _number("daemons", 60, 1, 3600,
        "how long a daemon may take to become ready; a queue manager that is replaying its journal "
        "asks for more")
    drain_timeout_s: int = _number("daemons", 30, 0, 3600,
        "how long a stop waits for readers to finish the messages in their hands")
    stop_timeout_s: int = _number("daemons", 60, 1, 3600,
        "a daemon that was told to stop is killed after this time; more than drain_timeout_s")
    restart_backoff_min_s: int = _number("daemons", 1, 0, 600,
        "pause before a dead process is started again; it doubles each time that the process dies "
        "young")
    restart_backoff_max_s: int = _number("daemons", 60, 1, 3600,
        "longest such pause; a process that lived this long begins with the shortest one again")
    event_level: str = _choice("daemons", "REPORT", _LEVELS,
        "the most detailed level that goes to logs/events.log")
    event_log_bytes_max: int = _number("daemons", 64 * MIB, 0, 1024 * GIB,
        "at this size logs/events.log is renamed to events.log.1, in place of the one before; 0: "
        "it grows without end, unless logrotate sees to it")
    mail_log_bytes_max: int = _number("daemons", 64 * MIB, 0, 1024 * GIB,
        "the same for logs/mail.log")
    event_messages: str = _text("daemons", "", _EVENTS, " ".join(("all, or of", *ALL_EVENTS)),
        "which events queue.manager puts as JSON on the queue SYSTEM.EVENTS, if there is one "
        "(those of alarms, omq-alarms); empty: none")
    event_depth_high: int = _number("daemons", 80, 1, 100,
        "the event depth_high is raised, once, when a queue has this many per cent of its "
        "max_depth")
    event_depth_low: int = _number("daemons", 40, 0, 99,
        "depth_low is raised after it, when the queue is down to this many per cent")
    event_oldest_s: int = _number("daemons", 3600, 1, YEAR_S,
        "the event oldest_age is raised for a queue with a message that no reader has taken for so "
        "long")
    event_burst: int = _number("daemons", 10, 1, 100_000,
        "how many events of one kind and cause are logged within event_period_s; of any more only "
        "the number is")
    event_period_s: int = _number("daemons", 60, 1, 86400,
        "see event_burst; a client that repeats a wrong request must not fill the log")
    operator_confirm_messages: int = _number("daemons", 10, 0, 1_000_000,
        "tools ask before they change more messages than this, unless --yes is given")
    operator_undo_s: int = _number("daemons", 3600, 0, 30 * 86400,
        "how long a message that an operator deleted can be brought back; 0: it is gone at once")
    operator_requeue_max: int = _number("daemons", 100, 1, 1_000_000,
        "most messages that one omrequeue sends back, so that a cause that is still there shows "
        "soon")
    qm_dont_read_messages_at_start: bool = _flag("daemons",
        "start without the messages of the pool, which stay there: when it is damaged, or is being "
        "examined",
        default=False)
    # fmt: on


_DEFAULTS: Final = [(item.name, item.default) for item in fields(Settings)]

KEYS: Final[dict[str, Key]] = {item.name: item.metadata[METADATA] for item in fields(Settings)}
"""The table by key, in the order of the file."""

DEFAULTS: Final = Settings()
