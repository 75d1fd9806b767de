"""omq standby keep, register, and a promotion where a lease decides (services.standby.keeper).

Errors: those of services.standby.keeper; LeaseUnreachable; LeaseRefused; TermUnknown; NotInSync;
LeaseTaken.
"""

from __future__ import annotations

from omq.base import clock, side_files
from omq.base.config import load_settings
from omq.base.errors import BadRequest, Exit, LeaseTaken, LeaseUnreachable
from omq.base.event_log import EventLog, Level
from omq.base.settings import Settings
from omq.core.standby.promotion import promote
from omq.services.daemon.notify import Notifier
from omq.services.daemon.options import Location
from omq.services.daemon.signals import Signals
from omq.services.standby.etcd import CallFailed, Etcd
from omq.services.standby.lease import Lease
from omq.storage import spool
from omq.storage.instance_file import Instance, Role

_CALL_S = 5.0  # for one member of etcd to answer a command


def keep(location: Location) -> int:
    """The keeper, until a signal."""
    from omq.services.standby.keeper import Keeper

    info = spool.open_spool(location.paths.root, writer=True, any_role=True)
    settings = load_settings(location.conf_dir)
    log = EventLog("omq-standby-keep", info.paths.event_log, level=Level[settings.event_level],
                   stderr=True, bytes_max=settings.event_log_bytes_max)
    signals = Signals()
    signals.install(children=True)
    try:
        keeper = Keeper(location, settings, log, signals)
        try:
            keeper.run(Notifier())
        finally:
            keeper.close()
    finally:
        side_files.retry()
        log.close()
    return Exit.OK


def register(location: Location) -> int:
    """etcd has the term of this primary, where it has none or an earlier one."""
    info = spool.open_spool(location.paths.root, writer=True, any_role=True)
    instance, settings = info.instance, load_settings(location.conf_dir)
    if instance.role is not Role.PRIMARY:
        raise BadRequest(reason=f"{info.paths.root} is a {instance.role.value}: register the "
                         "primary")
    lease = _lease(location, instance, settings)
    try:
        lease.register(instance, lease.look())
    except CallFailed as error:
        raise LeaseUnreachable(reason=str(error)) from error
    print(f"etcd has term {instance.term} of the instance {instance.uuid.hex()}; go on with: omq "
          "standby keep")
    return Exit.OK


def _lease(location: Location, instance: Instance, settings: Settings) -> Lease:
    if not settings.standby_lease:
        raise BadRequest(reason="standby_lease in omq.conf names no etcd")
    return Lease(Etcd(settings, location.conf_dir, _CALL_S), settings.standby_lease_prefix,
                 instance, settings.standby_address, settings.standby_lease_s)


def promote_by_lease(location: Location, instance: Instance, settings: Settings, won: int | None,
                     *, behind: bool) -> Instance:
    """`won`: the keeper has won that term. Else it is won here, and the lease then runs out or is
    taken by the keeper that is started: this member alone can have it. Needs the locks of a
    promotion."""
    if won is None:
        lease = _lease(location, instance, settings)
        try:
            seen = lease.look()
            if seen.holder is not None:
                raise LeaseTaken(member=seen.holder.member or "the primary", term=seen.holder.term)
            held = lease.promote(instance, seen, behind=behind)
        except CallFailed as error:
            raise LeaseUnreachable(reason=str(error)) from error
        if held is None:
            raise LeaseUnreachable(reason="another member was quicker; look again")
        won = held.term
    return promote(location.paths, instance, settings, clock.wall_ns(), won=won)
