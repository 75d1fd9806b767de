"""The keys of section [amqp] of omq.conf; see omq.base.settings, whose base this is: clients of
AMQP 1.0, who they are and what they may take.
"""

from __future__ import annotations

from typing import Final

from omq.base.limits import BATCH_MAX, BODY_BYTES_MAX, GIB, KIB, MIB
from omq.base.settings_key import choice, number, part, text
from omq.base.settings_qmgr import QmgrSettings

_PATH: Final = r"(/[^\s]*)?"
_PATH_RULE: Final = "an absolute path without spaces, or nothing"
_HOST: Final = r"[A-Za-z0-9.:_-]{1,255}"
_USER: Final = r"([A-Za-z0-9_][A-Za-z0-9_.-]{0,31})?"


@part
class AmqpSettings(QmgrSettings):
    """One field per key."""

    # fmt: off
    amqp_listen_host: str = text("amqp", "127.0.0.1", _HOST, "a host name or address",
        "address that amqp.server listens on; loopback: programs of this host only")
    amqp_listen_port: int = number("amqp", 5672, -1, 65535,
        "port without TLS; -1: none, 0: any free one (in run/, for tests)")
    amqps_listen_port: int = number("amqp", -1, -1, 65535,
        "port with TLS from the first byte, 5671 by its registration; -1: none")
    amqp_plain: str = choice("amqp", "loopback", ("loopback", "everywhere"),
        "where amqp_listen_port may be: passwords and messages cross it unencrypted")
    amqp_tls_certificate: str = text("amqp", "", _PATH, _PATH_RULE,
        "PEM file with this host's certificate and those between it and its authority; read again "
        "at a reload")
    amqp_tls_key: str = text("amqp", "", _PATH, _PATH_RULE,
        "PEM file with the certificate's key, which others must not read; empty: it is in the "
        "file of the certificate")
    amqp_tls_ca_file: str = text("amqp", "", _PATH, _PATH_RULE,
        "PEM file with the authorities, and lists of what they have revoked, that certificates of "
        "clients are verified by: then EXTERNAL is offered, the user is the certificate's common "
        "name; empty: no certificate is asked for")
    amqp_users: str = text("amqp", "", _PATH, _PATH_RULE,
        "file of those who have a password (PLAIN), a line 'name:hash' each as submission_users, "
        "which others must not read; a name is an account of this host, whose rights it has; "
        "empty: no user has one")
    amqp_anonymous_user: str = text("amqp", "", _USER, "the name of an account, or nothing",
        "account whose rights clients without a login have; empty: they are refused")
    amqp_connections_max: int = number("amqp", 1000, 1, 100_000,
        "connections at once; one more is closed before a byte is read")
    amqp_user_connections_max: int = number("amqp", 200, 1, 100_000,
        "connections of one user at once")
    amqp_links_max: int = number("amqp", 1024, 1, 10_000,
        "links of one connection at once; told to clients as handle-max. Those that take or browse "
        "are bounded by amqp_receivers_max, too")
    amqp_receivers_max: int = number("amqp", 200, 1, 10_000,
        "links of all clients that take or browse messages: each costs a place of clients_max, "
        "one that browses or has a selector a thread, too")
    amqp_user_receivers_max: int = number("amqp", 100, 1, 10_000,
        "of those, the links of one user")
    amqp_user_temporaries_max: int = number("amqp", 100, 1, 900,
        "temporary queues of one user at once; all of the instance: queues_temporary_max")
    amqp_client_waiting_max: int = number("amqp", 200, 1, 100_000,
        "connections of one address at once that have not logged in yet")
    amqp_frame_bytes_max: int = number("amqp", 64 * KIB, 512, 16 * MIB,
        "largest frame that a client may send")
    amqp_idle_timeout_s: int = number("amqp", 60, 1, 86400,
        "a client that sends nothing this long, not even a heart-beat, is disconnected, with an "
        "error")
    amqp_handshake_timeout_s: int = number("amqp", 10, 1, 600,
        "time from the first byte until the connection is open, TLS and SASL included")
    amqp_close_timeout_s: int = number("amqp", 5, 1, 600,
        "time that a client has to read what it was told at the end; then its line is cut")
    amqp_client_logins_max: int = number("amqp", 10, 1, 1_000_000,
        "wrong passwords of one address in smtp_client_period_s; beyond it none is checked")
    amqp_message_bytes_max: int = number("amqp", 32 * MIB, 1 * KIB, BODY_BYTES_MAX,
        "largest message, told to clients at attach; a large body comes and goes in pieces")
    amqp_memory_bytes_max: int = number("amqp", 256 * MIB, 1 * MIB, 64 * GIB,
        "messages of all clients on their way to a queue; beyond it no credit is given")
    amqp_user_memory_bytes_max: int = number("amqp", 128 * MIB, 1 * MIB, 64 * GIB,
        "of those, the messages of one user")
    amqp_files_bytes_max: int = number("amqp", 1 * GIB, 1 * MIB, 1024 * GIB,
        "bodies of all clients on their way to a queue that are too large for memory: they lie in "
        "files without names in temp/ of the spool; beyond it transfers are released, to be sent "
        "again")
    amqp_user_files_bytes_max: int = number("amqp", 512 * MIB, 1 * MIB, 1024 * GIB,
        "of those, the bodies of one user")
    amqp_transactions_max: int = number("amqp", 100, 1, 10_000,
        "transactions of one connection that are open at once")
    amqp_transaction_timeout_s: int = number("amqp", 300, 1, 86400,
        "time that a transaction may be open: what it has taken nobody else gets; then it is "
        "rolled back, and its client hears of it at its discharge")
    amqp_credit: int = number("amqp", 500, 1, 10_000,
        "messages that a sender may have on their way to the disk; a hundred at most where they "
        "have more than 40 KiB each. The fewer, the more syncs")
    amqp_unsettled_max: int = number("amqp", 1000, 1, 100_000,
        "messages that a receiver may hold unsettled, whatever credit it gives")
    amqp_batch_messages_max: int = number("amqp", 100, 1, BATCH_MAX,
        "messages that one request to the manager puts or takes")
    amqp_outgoing_bytes_max: int = number("amqp", 4 * MIB, 64 * KIB, GIB,
        "bytes that wait for one slow client; beyond it nothing is taken off a queue for it")
    amqp_workers: int = number("amqp", 4, 1, 64,
        "puts at once in the event loop, and as many in threads, each over a connection of its own "
        "to the manager; and as many threads for what all the links that take have to do")
    amqp_retry_ms: int = number("amqp", 200, 10, 60_000,
        "pause before a message is put again that a full or inhibited queue did not take; its "
        "sender waits meanwhile")
    # fmt: on
