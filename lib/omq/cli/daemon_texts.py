"""What the manual page of a daemon says about it: a row for each of section 8.

The parser of a daemon has the same few options for all of them, so its page needs these words.
Invariant: every file that is named is a page of its own (conf), or a path below the spool.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Daemon(NamedTuple):
    """`does`: paragraphs. `conf`: the files and, in brackets, sections that configure it. `files`:
    paths in the spool, each with what it is."""

    does: tuple[str, ...]
    conf: tuple[str, ...]
    files: tuple[tuple[str, str], ...] = ()


SIGNALS: Final = (
    ("SIGTERM, SIGINT", "Stop: finish what has begun, give back the rest, and end."),
    ("SIGHUP", "Read the configuration again. A file that is invalid is refused, and the old one "
     "stays in force."))

DAEMONS: Final[dict[str, Daemon]] = {
    "queue.manager": Daemon((
        "Holds the queues. It takes the requests of all clients in groups, applies each group to "
        "the index in shared memory, appends it to the journal as one block, syncs once, and then "
        "sends the replies: what is acknowledged is on disk. It is the only writer of the index "
        "and of the journal, and there is one per spool.",
        "A start loads the message pool, replays the rest of the journal, and builds the index. "
        "The first disk error ends the process with code 74 and a tombstone; no client of that "
        "group was acknowledged, and the next start reads what the disk really has. A damaged "
        "spool is not served (code 65): see omqrecover(1)."),
        ("omq.conf", "queues.conf", "authority.conf"),
        (("journal/", "the journal"), ("run/qmgr.sock", "the socket that clients connect to"),
         ("run/ids.json", "where the index and the request queue are, for tools"),
         ("logs/qmgr.tomb", "the tombstone of a manager that died of an error"))),
    "pool.writer": Daemon((
        "Follows the journal and applies it to the message pool, so that a restart is short. It "
        "takes the checkpoints, makes the next journal file in advance, copies bodies that are "
        "still needed from old journal files to the store, moves retired files to the archive, and "
        "removes the oldest history when the disk runs short.",
        "It can be killed at any time: the last checkpoint counts, and the same work is done "
        "again. Clients do not wait for it until it is far behind; then the queue manager slows "
        "them down."),
        ("omq.conf",),
        (("msgpool/", "the message pool and its checkpoint"), ("store/", "long-lived bodies"),
         ("archive/", "retired journal files"))),
    "idel.server": Daemon((
        "Reads the pseudo-queue IDEL, where a message goes when its last queue is finished with "
        "it. It removes the file of a large body first and then the record, so that no service "
        "waits for deletions.",
        "A file that cannot be removed is retried after pauses that grow; after idel_attempts_max "
        "attempts it is set aside with a note in quarantine/."),
        ("omq.conf",),
        (("data/", "large bodies"), ("quarantine/", "notes about files that were set aside"))),
    "service.router": Daemon((
        "Reads queue ROUTER and decides where each recipient's copy of a mail goes: a mailbox of "
        "this host (LOCAL), another host (UNIX), a queue of your own, or a report (ERRMGR). The "
        "mail leaves ROUTER and its copies appear on the other queues in one atomic operation.",
        "Most mail that arrives by SMTP skips it: smtp.server applies the same rules."),
        ("routes.conf", "omq.conf")),
    "local.delivery": Daemon((
        "Reads queue LOCAL and writes each mail into the Maildirs of its recipients, with "
        "Return-Path and Delivered-To on top. A mailbox that cannot be written (disk or quota "
        "full) is retried; the others are not delivered to twice by that.",),
        ("routes.conf", "omq.conf"), (("mail/", "the Maildirs, if maildir_root is not set"),)),
    "unix.out": Daemon((
        "Reads queue UNIX and sends mail to other hosts by SMTP, or by LMTP or a command where "
        "routes.conf says so. A scheduler decides which channel process sends which mail, so that "
        "a slow or dead peer delays nobody else's mail.",
        "A mail that a peer defers is retried after pauses that grow; one that it refuses, or that "
        "is too old, goes to ERRMGR. omq-peers(1) shows peers, and holds or retries them."),
        ("routes.conf", "omq.conf"),
        (("run/unix.peers.json", "the state of the peers"),
         ("logs/unix.sends.jsonl", "what was sent, when, and with what result"))),
    "xport.out": Daemon((
        "Reads queue XPORT and gives each mail to a command (xport_command), usually a sendmail "
        "program, without a shell. The command's exit code decides: 0 done, 75 later, a refusal is "
        "reported to the sender. It is off as shipped.",),
        ("routes.conf", "omq.conf", "services.conf")),
    "smtp.server": Daemon((
        "Takes mail by SMTP and answers 250 once the mail is on disk in a queue. It listens on "
        "loopback unless it is configured otherwise, with ports of its own for other hosts, for "
        "mail programs that log in, and for a filter.",
        "Limits per client and in total keep one sender from starving the others."),
        ("omq.conf", "routes.conf"),
        (("run/smtp.port", "the address that it listens on"),
         ("logs/mail.log", "one line for each step of a mail"))),
    "mail.drop": Daemon((
        "Takes mail from programs of this host (omq-sendmail(1): cron, mail(), git send-email) "
        "over a socket and puts it on ROUTER. It also accepts mail while the queue manager does "
        "not run; that mail waits in files of the spool. It is off as shipped.",),
        ("omq.conf", "services.conf"), (("run/drop.sock", "the socket"),)),
    "amqp.server": Daemon((
        "Lets clients of AMQP 1.0 and 0-9-1 put, take and browse messages. Queues are addresses, "
        "authority.conf decides what a user may do, and a settlement is sent once it is durable.",
        "At a stop it tells clients to reconnect later. It needs the extra amqp of omq-suite, and "
        "is off as shipped."),
        ("omq.conf", "authority.conf", "services.conf")),
    "channel.sender": Daemon((
        "Sends the messages of transmission queues to other instances, each exactly once: a batch "
        "in doubt is settled with the other side before anything else is sent. omq-channel(1) "
        "defines, shows, starts and stops channels.",
        "It needs the extra amqp of omq-suite, and is off as shipped."),
        ("omq.conf", "services.conf"), (("run/channels.json", "the state of the channels"),)),
    "error.manager": Daemon((
        "Reads queue ERRMGR and sends a report to the sender of a mail about the recipients that "
        "were not reached. Reports are limited per minute and per sender. A mail that must not be "
        "answered goes to queue ERROR, for the operator.",),
        ("omq.conf", "routes.conf")),
    "trigger.monitor": Daemon((
        "Starts programs for queues: it reads the trigger messages on SYSTEM.TRIGGERS and runs the "
        "command or systemd unit of triggers.conf, without a shell. A command that fails is "
        "started again after a pause that grows. It is off as shipped.",),
        ("triggers.conf", "queues.conf", "omq.conf")),
    "schedule.server": Daemon((
        "Puts messages at planned times. A schedule is a message on SYSTEM.SCHEDULES; what it puts "
        "and its next time are one atomic operation, so a planned time is neither lost nor served "
        "twice. omq-schedule(1) defines, shows, pauses and runs schedules. It is off as shipped.",),
        ("schedules.conf", "omq.conf")),
}
