"""Every command and daemon of omq, a row each; what starts, installs and describes them follows.

From here come the launchers in bin/, the scripts of an installation (setup.py), manual pages and
completions (`make manual` writes these and bin/), what the launcher starts, what the fork server
imports. A service besides has its section in conf/services.conf: EXTENDING, "How to add a daemon".

This module imports nothing of omq: setup.py reads it before anything is installed.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Program(NamedTuple):
    """`target`: module:function, which takes the arguments and gives the exit code. `title`: one
    line for people."""

    target: str
    title: str


PROGRAMS: Final[dict[str, Program]] = {
    "queue.manager": Program(
        "omq.services.manager.queue_manager:main",
        "the daemon that holds the queues"),
    "pool.writer": Program(
        "omq.services.pool.pool_writer:main",
        "writes checkpoints, bodies and the archive"),
    "idel.server": Program("omq.services.readers.idel_server:main", "the Item Delete Daemon"),
    "service.router": Program(
        "omq.services.mail.router:main",
        "routes mail to the queues of its recipients"),
    "local.delivery": Program("omq.services.mail.local_delivery:main", "delivers mail to Maildirs"),
    "unix.out": Program("omq.services.mail.unix_out:main", "the Internet Mail Gateway"),
    "xport.out": Program(
        "omq.services.mail.xport_out:main",
        "the sendmail interface: gives mail to a command"),
    "smtp.server": Program("omq.services.mail.smtp_server:main", "takes mail by SMTP"),
    "mail.drop": Program(
        "omq.services.mail.drop_server:main",
        "takes mail from programs of this host"),
    "amqp.server": Program(
        "omq.services.amqp.amqp_server:main", "serves clients of AMQP 1.0 and 0-9-1"),
    "channel.sender": Program(
        "omq.services.channel.channel_sender:main",
        "sends messages to other instances"),
    "error.manager": Program(
        "omq.services.mail.error_manager:main",
        "reports what cannot be delivered"),
    "trigger.monitor": Program(
        "omq.services.trigger.monitor:main",
        "starts the programs that queues ask for"),
    "schedule.server": Program(
        "omq.services.schedule.schedule_server:main",
        "puts messages when schedules are due"),
    "omq": Program(
        "omq.cli.setup.omq_main:main",
        "set up an installation and check its configuration"),
    "omrc": Program("omq.cli.operate.omrc:main", "start an instance"),
    "omshut": Program("omq.cli.operate.omshut:main", "stop an instance"),
    "omon": Program("omq.cli.operate.omon:main", "turn a service on"),
    "omoff": Program("omq.cli.operate.omoff:main", "turn a service off"),
    "omsetsvc": Program("omq.cli.operate.omsetsvc:main", "show and change what a service is"),
    "omstat": Program("omq.cli.look.omstat:main", "show the state of daemons and services"),
    "omsend": Program("omq.cli.queue.omsend:main", "put messages on queues"),
    "omq-sendmail": Program(
        "omq.cli.queue.omq_sendmail:main",
        "hand in mail as sendmail does; mailq, newaliases"),
    "omread": Program("omq.cli.queue.omread:main", "take messages from a queue"),
    "omqdump": Program("omqtools.omqdump.main:main", "look into the queues and change them"),
    "omq-archive": Program(
        "omq.cli.operate.omq_archive:main",
        "archive retired journal files, remove old ones"),
    "omq-spark": Program("omqtools.omqspark.main:main", "analytics of the journal archive"),
    "omq-metrics": Program(
        "omq.cli.watch.omq_metrics:main",
        "serve the figures of an instance to Prometheus"),
    "omq-web": Program("omq.cli.web.omq_web:main", "serve the console of an instance"),
    "omqtest": Program(
        "omqtools.omqtest.main:main",
        "pull the plug of an instance and see what is left"),
    "omqrecover": Program(
        "omqtools.omqrecover.main:main",
        "look into, repair or rebuild a spool that does not run"),
    "omqconv": Program("omq.cli.queue.omqconv:main", "convert an old-style queues directory"),
    "omtop": Program("omq.cli.look.omtop:main", "show the queues live"),
    "omqlog": Program("omq.cli.look.omqlog:main", "tell what happened to a message"),
    "omqwhy": Program("omq.cli.look.omqwhy:main", "tell why a message does not move"),
    "omqshape": Program(
        "omq.cli.look.omqshape:main",
        "show how old the messages on the queues are"),
    "omqadvise": Program("omq.cli.look.omqadvise:main", "tell how many readers a queue needs"),
    "omqcheck": Program(
        "omq.cli.look.omqcheck:main",
        "check that index, Message Pool and journal agree"),
    "omscan": Program(
        "omq.cli.operate.omscan:main",
        "find containers and pool records without a message"),
    "omshowlog": Program("omq.cli.look.omshowlog:main", "show the event log"),
    "omfreeq": Program("omq.cli.operate.omfreeq:main", "release a reader from a queue"),
    "omhold": Program("omq.cli.operate.order_command:hold", "hold messages"),
    "omrelease": Program(
        "omq.cli.operate.order_command:release",
        "make held or deferred messages ready"),
    "omrequeue": Program("omq.cli.operate.order_command:requeue", "send messages back from POISON"),
}
"""By name; a daemon has a dot in it."""

ALIASES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "sendmail": ("omq-sendmail", ()), "mailq": ("omq-sendmail", ("-bp",)),
    "newaliases": ("omq-sendmail", ("-bi",))}
"""What a link to a script means by its own name: a program, and its first arguments."""

LAUNCHER: Final = """\
#!/bin/sh
# NAME from a checkout: uses the checkout's own environment, from whatever directory it is called.
here=$(dirname -- "$(readlink -f -- "$0")")
python=$here/../.venv/bin/python
[ -x "$python" ] || { echo "NAME: $python is missing; run 'make setup' first" >&2; exit 78; }
exec "$python" -P -m omq.cli.launch NAME "$@"
"""
"""bin/NAME of a checkout."""
