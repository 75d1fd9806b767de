"""Where an instance keeps its things: the spool's layout; which spool and conf to use.

    <spool>/journal archive msgpool store data quarantine   durable
    <spool>/instance.json *.held.json *.sts/ *.tls-reports.json   durable
    <spool>/volatile temp                                   emptied at start
    <spool>/spares                                          emptied at start, by idel.server
    <spool>/run    qmgr.sock ids.json manager.lock *.pid    may be gone after a reboot
    <spool>/logs   events.log qmgr.tomb                     for people
    <spool>/conf   this instance's own configuration, when there is one

`data` is what the original's item references call `~/data`.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from omq.base import access
from omq.base.errors import BadRequest, SpoolMissing
from omq.base.names import check_instance_name, escape


@dataclass(frozen=True, slots=True)
class SpoolPaths:
    """Every path of one instance, from the root of its spool."""

    root: Path

    @property
    def journal(self) -> Path:
        return self.root / "journal"

    @property
    def archive(self) -> Path:
        return self.root / "archive"

    @property
    def msgpool(self) -> Path:
        return self.root / "msgpool"

    @property
    def rebuilding(self) -> Path:
        """The message pool that `omqrecover rebuild` makes; there only until it is complete."""
        return self.root / "msgpool.rebuild"

    @property
    def store(self) -> Path:
        return self.root / "store"

    @property
    def data(self) -> Path:
        """Containers: one file each for a large message."""
        return self.root / "data"

    @property
    def spares(self) -> Path:
        """Names of containers that may be used again (storage.recycled_containers)."""
        return self.root / "spares"

    @property
    def volatile(self) -> Path:
        """Bodies of non-persistent messages; emptied at start, never synced."""
        return self.root / "volatile"

    @property
    def quarantine(self) -> Path:
        """Damaged blocks and records, each with where it was and why."""
        return self.root / "quarantine"

    @property
    def maildrop(self) -> Path:
        """Mail of this host's programs that no queue has yet; made by mail.drop."""
        return self.root / "maildrop"

    @property
    def drop_socket(self) -> Path:
        """Where programs of this host hand in mail."""
        return self.run / "drop.sock"

    @property
    def web_socket(self) -> Path:
        """Where programs of this host ask omq-web."""
        return self.run / "web.sock"

    @property
    def amqp_socket(self) -> Path:
        """Where operators look at the connections of amqp.server."""
        return self.run / "amqp.sock"

    @property
    def run(self) -> Path:
        """Sockets, ids, locks, pid files."""
        return self.root / "run"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def temp(self) -> Path:
        return self.root / "temp"

    @property
    def conf(self) -> Path:
        return self.root / "conf"

    @property
    def socket(self) -> Path:
        return self.run / "qmgr.sock"

    @property
    def manager_lock(self) -> Path:
        """Held by the queue manager and by offline repair alike."""
        return self.run / "manager.lock"

    @property
    def pool_lock(self) -> Path:
        """Held by the one process that writes the message pool."""
        return self.msgpool / "lock"

    @property
    def archive_lock(self) -> Path:
        """Held by who makes or removes a file of the archive, or a hold on it."""
        return self.run / "archive.lock"

    @property
    def checkpoint_lock(self) -> Path:
        """Held while a checkpoint is taken, or while the pool is copied for a standby."""
        return self.run / "checkpoint.lock"

    @property
    def protection(self) -> Path:
        """What an acknowledgement means, where replies wait for standbys."""
        return self.run / "protection.json"

    @property
    def lease(self) -> Path:
        """How the lease is, where etcd decides who is primary."""
        return self.run / "lease.json"

    @property
    def keeper_lock(self) -> Path:
        """Held by `omq standby keep`."""
        return self.run / "keeper.lock"

    @property
    def standbys_lock(self) -> Path:
        """Held while standbys.json is changed."""
        return self.run / "standbys.lock"

    @property
    def standby(self) -> Path:
        """What the process that follows a primary says of itself."""
        return self.run / "standby.json"

    @property
    def ship(self) -> Path:
        """What the process that ships the journal says of itself."""
        return self.run / "ship.json"

    @property
    def ship_lock(self) -> Path:
        """Held by that process."""
        return self.run / "ship.lock"

    @property
    def standby_pause(self) -> Path:
        """There is such a file: a standby redoes nothing."""
        return self.run / "standby.pause"

    @property
    def standby_port(self) -> Path:
        """Address and port on which standbys are served."""
        return self.run / "standby.port"

    @property
    def ids(self) -> Path:
        """The System V ids of the index segment and the request queue."""
        return self.run / "ids.json"

    @property
    def tombstone(self) -> Path:
        return self.logs / "qmgr.tomb"

    @property
    def event_log(self) -> Path:
        return self.logs / "events.log"

    @property
    def uuid(self) -> Path:
        """The instance's uuid and format version."""
        return self.root / "instance.json"

    def held(self, service: str) -> Path:
        """What an operator holds of a service's peers and channels; durable."""
        return self.root / f"{service}.held.json"

    def sts(self, service: str) -> Path:
        """Policies of MTA-STS that a service fetched; durable."""
        return self.root / f"{service}.sts"

    def pid_file(self, service: str) -> Path:
        return self.run / f"{service}.pid"

    def directories(self) -> tuple[Path, ...]:
        """The directories a spool consists of, in the order in which they are made."""
        return (
            *(self.root, self.journal, self.archive, self.msgpool, self.store, self.data),
            *(self.volatile, self.quarantine, self.run, self.logs, self.temp),
        )


def chosen_spool(spool: Path | str | None, instance: str | None) -> Path:
    """What is given explicitly wins: `spool`, else /var/lib/omq-INSTANCE; else OMQ_SPOOL, else
    /var/lib/omq. BadRequest when `spool` is not that of `instance`."""
    if spool is None:
        from_environment = os.environ.get("OMQ_SPOOL")
        if instance is None and from_environment:
            return Path(from_environment).absolute()
        return spool_of_instance(instance)
    chosen = Path(spool).absolute()
    if instance is not None and chosen != spool_of_instance(instance):
        raise BadRequest(reason=f"instance {instance} has the spool {spool_of_instance(instance)}, "
                         f"not {chosen}: say one of the two")
    return chosen


def existing_spool(root: Path) -> SpoolPaths:
    """The paths of a spool whose directory is there. SpoolMissing, AccessDenied."""
    try:
        there = stat.S_ISDIR(root.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        there = False
    except PermissionError as error:
        raise access.denied(root, error) from error
    except (OSError, ValueError) as error:  # too long for a path, a zero byte, a dead mount
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise BadRequest(reason=f"the spool cannot be {escape(str(root), 80)}: {reason}") from error
    if not there:
        raise SpoolMissing(path=root)
    return SpoolPaths(root)


def conf_dir(spool: Path, instance: str | None = None) -> Path:
    """OMQ_CONF, unless an instance is named; else <spool>/conf, else /etc/omq[-INSTANCE], else the
    shipped one.

    The first that exists is used whole; a file that it lacks is read from the shipped directory.
    AccessDenied when the user may not even look."""
    chosen = os.environ.get("OMQ_CONF")
    if chosen and instance is None:
        return Path(chosen).absolute()
    for candidate in (spool / "conf", conf_of_instance(instance)):
        try:
            if candidate.is_dir():
                return candidate
        except PermissionError as error:
            raise access.denied(candidate, error) from error
    return shipped_conf()


def shipped_conf() -> Path:
    """The conf directory that comes with omq: inside the installed package, or of the checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "conf"
    return installed if installed.is_dir() else package.parents[1] / "conf"


def shipped_units() -> Path:
    """The templates of the systemd units, inside the installed package or of the checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "units"
    return installed if installed.is_dir() else package.parents[1] / "units"


def conf_of_instance(instance: str | None) -> Path:
    """/etc/omq, or /etc/omq-INSTANCE."""
    return _of_instance(Path("/etc/omq"), instance)


def spool_of_instance(instance: str | None) -> Path:
    """/var/lib/omq, or /var/lib/omq-INSTANCE."""
    return _of_instance(Path("/var/lib/omq"), instance)


def _of_instance(base: Path, instance: str | None) -> Path:
    if instance is None:
        return base
    return base.with_name(f"{base.name}-{check_instance_name(instance)}")
