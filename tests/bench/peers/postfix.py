"""Postfix in a folder of its own: its smtpd takes mail and relays it, or delivers it to a Maildir.

Its daemons come out of Debian's package as it is unpacked; configuration, queue and data lie in the
folder. Postfix wants two users of its own: two system users that every Debian has stand in for them
(news, and the group proxy). It must be started as root.
"""

from __future__ import annotations

import os
import pwd
import signal
from pathlib import Path

from tests.bench.instance import BenchError
from tests.bench.peers import software
from tests.bench.peers.processes import Server, free_port

LOCAL_DOMAIN = "localhost.localdomain"
OWNER, GROUP, RECIPIENT_UID = "news", "proxy", 65534
SETTINGS = (
    "Debian's defaults without chroot, TLS, address rewriting or DNS; every queue file is synced "
    "before 250, every Maildir file before it leaves the queue; 100 deliveries at once")
_PUBLIC = ("public", "maildrop")
_QUEUES = ("active", "bounce", "corrupt", "defer", "deferred", "flush", "hold", "incoming",
           "private", "saved", "trace", "pid", *_PUBLIC)
_MAIN = """\
compatibility_level = 3.6
queue_directory = {home}/queue
data_directory = {home}/data
command_directory = {tree}/usr/sbin
daemon_directory = {tree}/usr/lib/postfix/sbin
shlib_directory = {tree}/usr/lib/postfix
meta_directory = {home}/conf
mail_owner = {owner}
setgid_group = {group}
import_environment = MAIL_CONFIG LD_LIBRARY_PATH
maillog_file = {home}/postfix.log
maillog_file_prefixes = {home}
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
mynetworks = 127.0.0.0/8
myhostname = mail.bench.invalid
mydestination =
alias_maps =
local_recipient_maps =
relayhost = [127.0.0.1]:{sink}
disable_dns_lookups = yes
smtp_host_lookup = native
smtp_tls_security_level = none
smtpd_tls_security_level = none
smtpd_peername_lookup = no
smtpd_client_connection_rate_limit = 0
smtpd_client_connection_count_limit = 0
default_destination_concurrency_limit = 100
initial_destination_concurrency = 20
virtual_mailbox_domains = {domain}
virtual_mailbox_base = {home}/mail
virtual_mailbox_maps = static:box/
virtual_uid_maps = static:{uid}
virtual_gid_maps = static:{uid}
"""
_MASTER = """\
127.0.0.1:{port} inet n - n - 100 smtpd
pickup unix n - n 60 1 pickup
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
tlsmgr unix - - n 1000? 1 tlsmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
verify unix - - n - 1 verify
flush unix n - n 1000? 0 flush
proxymap unix - - n - - proxymap
smtp unix - - n - - smtp
relay unix - - n - - smtp
showq unix n - n - - showq
error unix - - n - - error
retry unix - - n - - error
virtual unix - n n - - virtual
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
postlog unix-dgram n - n - 1 postlogd
"""


class Postfix:
    """One instance; `port` takes mail, what is not for LOCAL_DOMAIN goes to `sink`."""

    def __init__(self, home: Path, sink: int) -> None:
        self._home, self._sink = home, sink
        self.port = free_port()
        self.maildir = home / "mail" / "box" / "new"
        self.server = Server("postfix", home)

    def start(self) -> None:
        if os.geteuid() != 0:
            raise BenchError("Postfix must be started as root")
        environment = software.environment(MAIL_CONFIG=str(self._home / "conf"))
        self.make()
        self.server.start([software.program("usr/lib/postfix/sbin/master"), "-d",
                           "-c", self._home / "conf"], environment)
        self.server.wait_port(self.port)

    def stop(self) -> None:
        self.server.stop(signal.SIGTERM)

    def version(self) -> str:
        said = software.version([software.program("usr/sbin/postconf"), "-d", "-h",
                                 "mail_version"])
        return f"Postfix {said}"

    def make(self) -> None:
        """Its folder: configuration and an empty queue."""
        owner = pwd.getpwnam(OWNER)
        tree = software.program("usr/sbin/postconf").parents[2]
        values = {"home": self._home, "tree": tree, "owner": OWNER, "group": GROUP,
                  "sink": self._sink, "domain": LOCAL_DOMAIN, "uid": RECIPIENT_UID,
                  "port": self.port}
        for name, text in (("main.cf", _MAIN), ("master.cf", _MASTER)):
            path = self._home / "conf" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text.format(**values))
        (self._home / "conf" / "dynamicmaps.cf").touch()
        for name in ("data", *(f"queue/{queue}" for queue in _QUEUES)):
            made = self._home / name
            made.mkdir(parents=True, exist_ok=True)
            if name != "queue/pid":
                os.chown(made, owner.pw_uid, -1)
            made.chmod(0o755 if name == "queue/public" else 0o700)
        mail = self._home / "mail"
        mail.mkdir(exist_ok=True)
        os.chown(mail, RECIPIENT_UID, RECIPIENT_UID)
