"""The keys of section [channel] of omq.conf: message channels between instances (ADR 0078); see
omq.base.settings, whose base this is. The keys of a single channel are in its definition
(`omq channel define`)."""

from __future__ import annotations

from typing import Final

from omq.base.limits import MIB
from omq.base.settings_key import number, part, text
from omq.base.settings_standby import StandbySettings

_PATH: Final = r"(/[^\s]*)?"
_PATH_RULE: Final = "an absolute path without spaces, or nothing"
_NAME: Final = r"([A-Z0-9_.]{1,16})?"
_NAME_RULE: Final = "a name as of a queue, or nothing"


@part
class ChannelSettings(StandbySettings):
    """One field per key of [channel]."""

    # fmt: off
    manager_name: str = text("channel", "", _NAME, _NAME_RULE,
        "what other instances call this one (remote_manager of their remote queues); empty: the "
        "name of this host, in capitals, up to its first dot")
    default_transmission: str = text("channel", "", _NAME, _NAME_RULE,
        "transmission queue for messages to a queue manager that has none of its own name; empty: "
        "they are dead letters")
    channel_dead_letter: str = text("channel", "SYSTEM.DEAD", _NAME, _NAME_RULE,
        "queue for messages that a channel cannot put or send, with the reason in omq.dead.*")
    channel_hops_max: int = number("channel", 8, 1, 100,
        "channels that a message may cross; one more is a circle: it is a dead letter")
    channel_put_retries: int = number("channel", 10, 0, 1000,
        "how often a message is put again that its queue does not take now (full, inhibited), "
        "before it is a dead letter")
    channel_put_retry_ms: int = number("channel", 500, 10, 60_000,
        "pause before; the channel waits meanwhile")
    channel_names_ms: int = number("channel", 1000, 0, 60_000,
        "how long what a name stands for is believed, on the receiving side: a queue that was "
        "made, altered or pointed elsewhere counts for batches that come that much later; 0: each "
        "batch asks")
    channel_batch_messages_max: int = number("channel", 1000, 1, 5000,
        "messages of one batch that is received: they are one unit of work")
    channel_batch_bytes_max: int = number("channel", 64 * MIB, MIB, 256 * MIB,
        "bytes of one batch that is received, all of them in memory")
    channels_max: int = number("channel", 64, 1, 500,
        "channels that channel.sender runs at once: each costs two threads and two places of "
        "clients_max")
    channel_look_ms: int = number("channel", 500, 50, 60_000,
        "how often channel.sender looks whether channels were defined, started, stopped")
    channel_connect_timeout_s: int = number("channel", 20, 1, 600,
        "time for connection, TLS, SASL and the answer of the other side")
    channel_passwords: str = text("channel", "", _PATH, _PATH_RULE,
        "file with a line 'CHANNEL:user:password' for each channel that logs in by a "
        "password; others must not read it")
    channel_tls_ca_file: str = text("channel", "", _PATH, _PATH_RULE,
        "PEM file with the authorities that other instances' certificates are verified by; empty: "
        "those of the system")
    channel_tls_certificate: str = text("channel", "", _PATH, _PATH_RULE,
        "PEM file with a certificate, its key in it, that this instance shows to others; others "
        "must not read it")
    # fmt: on
