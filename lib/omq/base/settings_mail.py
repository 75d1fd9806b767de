"""The keys of section [mail] of omq.conf; see omq.base.settings, whose base this is."""

from __future__ import annotations

from typing import Final

from omq.base.limits import BATCH_MAX, BODY_BYTES_MAX, GIB, KIB, MIB
from omq.base.settings_drop import DropSettings
from omq.base.settings_key import YEAR_S, choice, flag, number, part, text

_HOST: Final = r"[A-Za-z0-9.:_-]{1,255}"
_HOST_RULE: Final = "a host name or address"
_NETWORKS: Final = r"[0-9a-fA-F.:/]+( +[0-9a-fA-F.:/]+)*"
_NETWORKS_RULE: Final = "networks like 192.0.2.0/24 or 2001:db8::/32, separated by spaces"
_NAME: Final = r"([A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*)?"
_OPTIONAL_HOST: Final = r"([A-Za-z0-9.:_\[\]-]{1,255})?"


@part
class MailSettings(DropSettings):
    """One field per key of [mail]."""

    # fmt: off
    hostname: str = text("mail", "", _NAME, "a host name",
        "name of this host in mail; empty: the system's own")
    smtp_listen_host: str = text("mail", "127.0.0.1", _HOST, _HOST_RULE,
        "address that smtp.server listens on; loopback: mail of this host's own programs only")
    smtp_listen_port: int = number("mail", 2525, 0, 65535,
        "port of smtp.server; 25 needs a privilege, 0: any free one (in run/, for tests)")
    smtp_message_bytes_max: int = number("mail", 32 * MIB, 1 * KIB, BODY_BYTES_MAX,
        "largest message, announced by SIZE; not above body_bytes_max")
    smtp_recipients_max: int = number("mail", 1000, 100, 1000,
        "recipients of one message (RFC 5321 4.5.3.1.8 asks for 100 at least); their addresses "
        "have 32 KiB together: 1000 of 31 bytes on average, 100 of the longest")
    smtp_sessions_max: int = number("mail", 100, 1, 10_000,
        "sessions at once at smtp_listen_port; one more is refused for now")
    smtp_sessions_reserved: int = number("mail", 20, 0, 5000,
        "the last of a port's, a quarter at most, are for clients that have no session there yet")
    smtp_memory_bytes_max: int = number("mail", 256 * MIB, 1 * MIB, 64 * GIB,
        "texts of all sessions together, counted twice (a text and its copy on the way to the "
        "queue); beyond it 452; at least twice the largest message")
    smtp_client_period_s: int = number("mail", 60, 1, 86400,
        "what one client does is counted in this time; clients of smtp_relay_networks are free")
    smtp_client_sessions_max: int = number("mail", 20, 1, 10_000,
        "sessions of one client (an IPv4 address, an IPv6 /64) at once at a port")
    smtp_client_connections_max: int = number("mail", 300, 0, 1_000_000,
        "connections of one client in the period; 0: no limit")
    smtp_client_messages_max: int = number("mail", 600, 0, 1_000_000,
        "messages of one client in the period; 0: no limit")
    smtp_client_recipients_max: int = number("mail", 3000, 0, 10_000_000,
        "recipients of one client in the period, also refused ones; 0: no limit")
    smtp_client_errors_max: int = number("mail", 100, 0, 1_000_000,
        "permanent refusals that one client may cause in the period; after that no new session")
    smtp_session_errors_max: int = number("mail", 20, 1, 10_000,
        "permanent refusals after which a session is closed: a client that guesses addresses has "
        "to reconnect")
    smtp_session_s_max: int = number("mail", 7200, 10, 604_800,
        "longest session: it gets 421 between two messages, and is cut in the middle of one")
    smtp_text_bytes_s_min: int = number("mail", 500, 0, 1_000_000,
        "slowest text: each byte gives a client this little more time than smtp_idle_timeout_s, so "
        "that a byte now and then holds no session; 0: only the session's time counts")
    smtp_stranger_priority: bool = flag("mail",
        "Priority, X-Priority and Importance of clients outside smtp_relay_networks count too: "
        "everybody's mail is urgent then",
        default=False)
    smtp_idle_timeout_s: int = number("mail", 300, 1, 3600,
        "a session without a whole command this long is closed (RFC 5321 4.5.3.2.7)")
    smtp_line_bytes_max: int = number("mail", 64 * KIB, 1001, 1 * MIB,
        "longest line; RFC 5321 4.5.3.1.6 asks for 1000 bytes, real mail has longer ones")
    smtp_bare_newline: str = choice("mail", "accept", ("accept", "refuse"),
        "a CR or LF alone, which RFC 5321 2.3.8 forbids: kept as it is, or the message is refused")
    smtp_relay_networks: str = text("mail", "127.0.0.0/8 ::1/128", _NETWORKS, _NETWORKS_RULE,
        "who may send to other hosts; others reach the domains and aliases of routes.conf only")
    smtp_workers: int = number("mail", 2, 1, 100,
        "puts at once, each over a connection of its own; what arrives meanwhile goes together in "
        "the next one")
    smtp_batch_messages_max: int = number("mail", 50, 1, BATCH_MAX,
        "messages that one put takes; a larger one than 64 KiB goes alone")
    smtp_straight: bool = flag("mail",
        "a mail that comes out as one message and needs no report goes straight to the queue of "
        "who delivers it; no: all mail stops at ROUTER first, to be held or read there",
        default=True)
    smtp_filter: str = text("mail", "", _OPTIONAL_HOST, "host:port, or nothing",
        "program that is asked about each text, by SMTP, before its client has the 250, and gives "
        "back what is to be delivered (a spam filter); empty: none")
    smtp_filter_return_host: str = text("mail", "127.0.0.1", _HOST, _HOST_RULE,
        "address at which the filter returns mail; a client that reaches it bypasses the filter")
    smtp_filter_return_port: int = number("mail", -1, -1, 65535,
        "port at which the filter gives back, for smtp_relay_networks alone; -1: none, 0: any free "
        "one")
    smtp_filter_timeout_s: int = number("mail", 120, 1, 600,
        "time for all of a text's way through the filter, then 451; clients wait 10 minutes (RFC "
        "5321 4.5.3.2.6)")
    smtp_filter_connections_max: int = number("mail", 20, 1, 200,
        "texts at the filter at once, each over a connection of its own; others wait")
    mail_header_scan_bytes: int = number("mail", 1 * MIB, 4 * KIB, 64 * MIB,
        "how far into a message its header is looked for: bounds the work on a hostile one")
    maildir_root: str = text("mail", "", r"(/[^\s]*)?", "an absolute path without spaces",
        "folder with one Maildir per local user; empty: mail/ in the spool")
    maildir_create: bool = flag("mail",
        "make the Maildir of a user at the first message; no: only users who have one get mail",
        default=True)
    maildir_pattern_max: int = number("mail", 1000, 0, 10_000_000,
        "Maildirs up to which one is made for a user whom only a pattern of routes.conf names: a "
        "stranger's guesses must not fill the disk")
    mailbox_full: str = choice("mail", "defer", ("defer", "refuse"),
        "mail for a mailbox that has reached its quota ([mailboxes] of routes.conf) waits (452 "
        "4.2.2), or is refused (552 5.2.2)")
    local_retry_s: int = number("mail", 300, 1, 86400,
        "pause before a mailbox that could not be written is tried again")
    local_expiry_s: int = number("mail", 5 * 86400, 60, YEAR_S,
        "after this the sender gets a report, as for remote mail")
    unix_smarthost: str = text("mail", "", _OPTIONAL_HOST, "host or host:port, or nothing",
        "where unix.out sends mail for domains without a peer in routes.conf; empty: nowhere")
    unix_port: int = number("mail", 25, 1, 65535,
        "port of a peer that is named without one")
    unix_connection_messages_max: int = number("mail", 100, 1, 10_000,
        "messages sent over one connection before it is closed, so that peers can balance")
    unix_connect_timeout_s: int = number("mail", 30, 1, 600,
        "time to reach a peer")
    unix_reply_timeout_s: int = number("mail", 300, 1, 1800,
        "time that a peer has for an answer to a command (RFC 5321 4.5.3.2: 5 minutes)")
    unix_data_timeout_s: int = number("mail", 600, 1, 3600,
        "time for sending a text and for the answer to it (RFC 5321 4.5.3.2.6: 10 minutes)")
    unix_recipients_max: int = number("mail", 100, 1, 1000,
        "recipients of one transaction; every host must take 100 (RFC 5321 4.5.3.1.8)")
    unix_connections_max: int = number("mail", 20, 1, 1000,
        "connections that one process keeps open; beyond it the longest unused one is closed")
    unix_connection_idle_s: int = number("mail", 2, 1, 600,
        "a process without work closes its connections after this")
    unix_split_bytes_max: int = number("mail", 256 * MIB, 0, 64 * GIB,
        "copies of a message for several peers, each finished by itself; beyond it peers share "
        "one, and after a crash a peer may get it again")
    unix_retry_step_s: int = number("mail", 60, 1, 86400,
        "the n-th retry comes n times this after the one before it")
    unix_retry_max_s: int = number("mail", 3600, 1, 86400,
        "longest pause between retries")
    unix_retry_expiry_s: int = number("mail", 5 * 86400, 60, YEAR_S,
        "after this the sender gets a report (RFC 5321 4.5.4.1: 4 to 5 days)")
    postmaster: str = text("mail", "postmaster", r"[^\s<>]{1,254}", "a mail address",
        "who is named in reports; without @ it is at this host")
    report_original: str = choice("mail", "headers", ("headers", "full"),
        "how much of the message a report returns (RFC 3464)")
    reports_per_minute_max: int = number("mail", 100, 1, 1_000_000,
        "non-delivery reports of one error.manager; those beyond it wait on ERRMGR")
    reports_per_sender_max: int = number("mail", 20, 1, 1_000_000,
        "reports to one sender in an hour; those beyond it wait: the address is likely forged")
    report_bytes_max: int = number("mail", 64 * KIB, 1 * KIB, 16 * MIB,
        "most bytes of the message that a report returns; a larger one is cut to its header")
    report_templates: str = text("mail", "", r"(/[^\s]*)?", "an absolute path without spaces",
        "folder with the texts of reports for people (failed.de, delayed, ...; see MAIL.md); "
        "empty: the built-in ones")
    # fmt: on
