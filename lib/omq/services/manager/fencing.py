"""May this spool be served? An old primary that comes back asks the members that it knows
(`standby_members`) before it reads or writes anything of its journal and pool, under the manager's
lock.

    one knows a later term          it becomes a former primary: NotPrimary, now and at each start
    another is primary of our term  two were promoted for one term: StandbyDiverged
    one does not answer             it may be the primary of a later term, and nobody can know:
                                    `standby_start_alone` says whether that is served (event 1665)

Where etcd decides (`standby_lease`), a manager begins with the lease alone: LeaseMissing.

Nothing is asked where no members are configured: a start then is as without a standby. The answer
holds for this moment. A member that is promoted later asks at its own start, and who serves under
an earlier term steps down (services.standby.primary).

Errors: NotPrimary; StandbyDiverged; MembersSilent, which a later start may not meet; DiskError.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from omq.base import events
from omq.base.errors import LeaseMissing, MembersSilent, StandbyDiverged
from omq.base.event_log import WARNING
from omq.base.names import escape
from omq.base.paths import SpoolPaths
from omq.services.daemon.daemon import DaemonContext
from omq.storage import instance_file
from omq.storage.instance_file import PRIMARY_MAX, UNNAMED, Instance, Role
from omq.storage.spool import refuse_others

if TYPE_CHECKING:
    from omq.services.standby.ask_members import AskedMember

_SAID_MAX: Final = 800  # characters of who is silent
_WAY_MAX: Final = 60  # of how one is reached


def need_lease(context: DaemonContext, instance: Instance) -> None:
    """LeaseMissing: etcd decides who is primary, and it is not known to be this one. What is
    acknowledged later waits for the lease of that moment (ipc.server.leased_replies)."""
    if not context.settings.standby_lease:
        return
    from omq.services.standby import lease_file

    found = lease_file.load(context.paths)
    if found is None or not found.left_s():
        raise LeaseMissing(path=context.paths.root, reason="it is not held here")
    if (found.term, found.member) != (instance.term, instance.member):
        raise LeaseMissing(path=context.paths.root, reason=f"it is of term {found.term}, and this "
                           f"is the primary of term {instance.term}")


def ask_members(context: DaemonContext, instance: Instance) -> None:
    """Return where this spool may be served. The errors of the module."""
    settings = context.settings
    if not settings.standby_members:
        return
    from omq.services.standby.ask_members import ask_all, members  # TLS: only where it is wanted

    context.notifier.extend(settings.start_timeout_s)
    context.notifier.status("asking the other members which term they know")
    asked = ask_all(members(settings.standby_members), instance, settings, context.conf_dir)
    step_aside(context.paths, instance, asked)
    silent = [each for each in asked if each.said is None]
    if not silent:
        return
    names = "; ".join(f"{_short(each.way)}: {each.why}" for each in silent)[:_SAID_MAX]
    if not settings.standby_start_alone:
        raise MembersSilent(members=escape(names), term=instance.term)
    context.log.event(events.MEMBERS_SILENT, WARNING, members=names, term=instance.term)


def step_aside(paths: SpoolPaths, instance: Instance, asked: list[AskedMember]) -> None:
    """NotPrimary, and instance.json says so, where one of them knows a later term. Needs the
    manager's lock."""
    later = [each for each in asked if each.said is not None and each.said.term > instance.term]
    for each in asked:
        said = each.said
        if (not later and said is not None and said.role is Role.PRIMARY
                and said.term == instance.term and said.member != instance.member):
            raise StandbyDiverged(path=paths.root, reason=f"two members are primary of term "
                                  f"{said.term}: {instance.member or 'this one'}, and "
                                  f"{said.member or 'the one'} at {each.way}; people decide which "
                                  "one goes on")
    if not later:
        return
    newest = max((each for each in later), key=_rank)
    assert newest.said is not None
    where = newest.way if newest.said.role is Role.PRIMARY else (
        f"the member of term {newest.said.term}")
    made = replace(instance, role=Role.FORMER, member=instance.member or UNNAMED,
                   primary=where[:PRIMARY_MAX])
    instance_file.write(paths, made)
    refuse_others(paths, made)


def _short(way: str) -> str:
    return way if len(way) <= _WAY_MAX else f"{way[: _WAY_MAX - 3]}..."


def _rank(asked: AskedMember) -> tuple[int, bool]:
    """The latest term, and of those who know it the primary."""
    assert asked.said is not None
    return asked.said.term, asked.said.role is Role.PRIMARY
