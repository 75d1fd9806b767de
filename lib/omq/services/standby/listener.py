"""`omq standby listen`: serves standbys over TLS, each by a thread (services.standby.primary).

Who comes shows a certificate, verified by `amqp_tls_ca_file`; its common name is an account of this
host that `[standby]` of authority.conf lets follow. Until then no byte of it is read but those of
the handshake, which has one deadline. There is no password to guess, and no line without TLS.

Invariants: 1. who may not follow is sent no piece; 2. strangers are bounded by source, so those of
one host keep nobody else out; 3. the right is asked again at a reload: whose is gone is cut off;
4. who is not a primary serves nobody, and says to members what it is: its role is looked at for
each connection.

Errors: ConfigError; PortInUse; DiskError; of one standby: an event, and its line ends.
"""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from omq.base import clock, events, side_files
from omq.base.authority import Authority, load_authority
from omq.base.config import load_settings
from omq.base.errors import ConfigError, DiskError, OmqError, PortInUse
from omq.base.event_log import ERROR, WARNING, EventLog
from omq.base.paths import SpoolPaths
from omq.base.rated_log import NEVER, RatedLog
from omq.base.settings import Settings
from omq.services.daemon.notify import Notifier
from omq.services.daemon.signals import Signals
from omq.services.network.accounts import account_of
from omq.services.network.secret_file import wrong
from omq.services.network.source import source_of
from omq.services.network.tls import common_name, secure_server, server_context, verify_clients
from omq.services.standby.ask_members import answer_only
from omq.services.standby.line import Line, Secured
from omq.services.standby.primary import Primary
from omq.storage import spool
from omq.storage.standby_holds import STANDBYS_MAX

STRANGERS_MAX: Final = 64  # lines of which nobody knows yet who it is
SOURCE_STRANGERS_MAX: Final = 4
BURST: Final = 5  # of one kind of event, for one source
LOOK_S: Final = 5.0
END_S: Final = 5.0  # for the threads at a stop
BACKLOG: Final = 64


@dataclass(frozen=True, slots=True)
class Policy:
    """Who may follow, and how it is known. Replaced whole at a reload."""

    settings: Settings
    authority: Authority
    tls: ssl.SSLContext

    def may_follow(self, name: str) -> bool:
        """Is it an account that may?"""
        account = account_of(name, self.authority) if name else None
        return account is not None and self.authority.may_follow(account.uid, account.gids)


def load_policy(conf_dir: Path, owner_uid: int) -> Policy:
    """Of omq.conf and authority.conf. ConfigError."""
    settings = load_settings(conf_dir)
    context = server_context(settings, conf_dir, "amqp")
    if context is None:
        raise wrong(conf_dir, "amqp_tls_certificate", "standbys are served over TLS alone",
                    "a PEM file with this host's certificate")
    if not settings.amqp_tls_ca_file:
        raise wrong(conf_dir, "amqp_tls_ca_file", "a standby identifies itself by its certificate",
                    "a PEM file with the authorities of clients")
    verify_clients(context, settings, conf_dir, ssl.CERT_REQUIRED)
    return Policy(settings, load_authority(conf_dir, owner_uid=owner_uid), context)


class _Guest:
    """A connection. `account`: of whom it is; empty: nobody knows yet."""

    def __init__(self, line: socket.socket, source: str) -> None:
        self.line, self.source = line, source
        self.account = ""
        self.thread: threading.Thread | None = None

    def cut(self) -> None:
        """Its thread comes to an end. Not SSLSocket.shutdown: that one first forgets that there is
        TLS, and a thread that sends meanwhile would send as it is."""
        with suppress(OSError):
            socket.socket.shutdown(self.line, socket.SHUT_RDWR)


class Listener:
    """See the module."""

    def __init__(self, paths: SpoolPaths, conf_dir: Path, log: EventLog, signals: Signals) -> None:
        self._paths, self._conf_dir, self._log, self._signals = paths, conf_dir, log, signals
        self._owner = paths.root.stat().st_uid
        self.policy = load_policy(conf_dir, self._owner)
        settings = self.policy.settings
        self._told = RatedLog(log, BURST, settings.smtp_client_period_s)
        self._lock = threading.Lock()
        self._guests: set[_Guest] = set()
        self._fault: DiskError | None = None
        self._socket = _listen(settings)
        host, port = self._socket.getsockname()[:2]
        side_files.replace(paths.standby_port, f"{host} {port}\n".encode())
        self.address = f"{host} port {port}"

    def run(self, notifier: Notifier) -> None:
        """Until a signal. DiskError: one that a line met; whoever starts next may write again."""
        self._log.event(events.STANDBY_LISTENS, address=self.address)
        notifier.ready(self._status())
        while not self._signals.stopping:
            if self._signals.take_reload():
                self._reload()
            self._signals.wait(LOOK_S, self._socket.fileno())
            if self._fault is not None:
                raise self._fault
            notifier.watchdog()
            notifier.status(self._status())
            self._told.flush(clock.monotonic_ns())
            self._accept()
        notifier.stopping()

    def _status(self) -> str:
        with self._lock:
            names = sorted(each.account for each in self._guests if each.account)
        return f"{self.address}, standbys: {', '.join(names) or 'none'}"

    def _accept(self) -> None:
        try:
            line, _ = self._socket.accept()
        except OSError:
            return  # nobody, or who has gone again
        guest = _Guest(line, source_of(line))
        with self._lock:
            full = self._full(guest.source)
            if not full:
                self._guests.add(guest)
        if full:
            line.close()
            self._refused(guest, "too many connections")
            return
        guest.thread = threading.Thread(target=self._serve, args=(guest,), daemon=True,
                                        name=f"standby {guest.source}")
        guest.thread.start()

    def _full(self, source: str) -> bool:
        strangers = [each.source for each in self._guests if not each.account]
        return (len(self._guests) - len(strangers) >= STANDBYS_MAX
                or len(strangers) >= STRANGERS_MAX
                or strangers.count(source) >= SOURCE_STRANGERS_MAX)

    def _serve(self, guest: _Guest) -> None:
        """One connection, from its first byte to its end."""
        policy = self.policy
        try:
            own = guest.line = secure_server(guest.line, policy.tls,
                                             policy.settings.amqp_handshake_timeout_s)
            account = common_name(own.getpeercert())
            reason = self._let_in(guest, account)
            if reason:
                self._refused(guest, reason)
            else:
                self._primary(own, guest, policy.settings)
        except OSError as error:
            self._refused(guest, f"TLS: {error}")
        finally:
            guest.line.close()
            with self._lock:
                self._guests.discard(guest)

    def _let_in(self, guest: _Guest, account: str) -> str:
        """Why not; empty: it is a standby now. A directory may be asked, so not under the lock."""
        while True:
            policy = self.policy
            allowed = policy.may_follow(account)
            with self._lock:
                if policy is not self.policy:
                    continue  # it was reloaded meanwhile
                if not allowed:
                    return f"account {account[:64]!r} may not follow"
                if sum(bool(each.account) for each in self._guests) >= STANDBYS_MAX:
                    return "too many standbys"
                guest.account = account
                return ""

    def _primary(self, own: ssl.SSLSocket, guest: _Guest, settings: Settings) -> None:
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line = Line(Secured(own), guest.account, settings.standby_silence_s)
        self._log.event(events.STANDBY_CONNECTED, account=guest.account, source=guest.source)
        try:
            info = spool.open_spool(self._paths.root, writer=True, any_role=True)
            try:
                spool.refuse_others(self._paths, info.instance)
            except OmqError as error:
                answer_only(line, self._paths, info.instance, error)
                raise
            Primary(self._paths, info.instance, line, settings.pool_poll_ms / 1000,
                    sync=bool(settings.standby_sync), conf_dir=self._conf_dir).serve()
        except OmqError as error:
            if isinstance(error, DiskError):
                self._fault = error  # this process writes nothing any more
            self._told.event(events.STANDBY_GONE, WARNING, guest.account, account=guest.account,
                             source=guest.source, reason=str(error))

    def _refused(self, guest: _Guest, reason: str) -> None:
        self._told.event(events.STANDBY_REFUSED, WARNING, guest.source, source=guest.source,
                         reason=reason)

    def _reload(self) -> None:
        try:
            policy = load_policy(self._conf_dir, self._owner)
        except ConfigError as error:
            self._log.event(events.RELOAD_REFUSED, ERROR, reason=str(error))
            return
        with self._lock:
            self.policy = policy
            standbys = [each for each in self._guests if each.account]
        for each in standbys:
            if not policy.may_follow(each.account):
                self._refused(each, f"account {each.account} may not follow any more")
                each.cut()
        self._log.event(events.SERVICE_RELOADED)

    def close(self) -> None:
        """Every line ends; what was not acknowledged is sent again."""
        self._socket.close()
        side_files.remove(self._paths.standby_port)
        with self._lock:
            guests = list(self._guests)
        for each in guests:
            each.cut()
        for each in guests:
            if each.thread is not None:
                each.thread.join(END_S)
        self._told.flush(NEVER)
        self._log.event(events.STANDBY_LISTENS_NO_MORE)


def _listen(settings: Settings) -> socket.socket:
    host, port = settings.standby_listen_host, settings.standby_listen_port
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        made = socket.socket(family, kind, protocol)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
            made.listen(BACKLOG)
            made.setblocking(False)  # noqa: FBT003  (by position alone)
        except OSError:
            made.close()
            raise
    except OSError as error:
        raise PortInUse(address=host, port=port, reason=error.strerror or str(error),
                        key="standby_listen_port") from error
    return made
