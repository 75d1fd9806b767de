"""Is this spool where it was, does no other process serve a copy of it, and no other member of its
instance go on in its place (services.manager.fencing)? Asked at each start, after the manager's
lock.

A live twin of our user is refused. A copy next to its original is served with a warning at each
start, until `omqrecover identity` says that this one goes on; a spool that was moved or restored is
noted once.

Errors: SpoolTwin; those of fencing.
"""

from __future__ import annotations

from omq.base import events
from omq.base.event_log import REPORT, WARNING
from omq.base.paths import SpoolPaths
from omq.services.daemon.daemon import DaemonContext
from omq.services.manager.fencing import ask_members, need_lease
from omq.storage import home
from omq.storage.home import Alone, Home
from omq.storage.instance_file import Instance
from omq.storage.spool import identity_command


def move_in(context: DaemonContext, paths: SpoolPaths, instance: Instance) -> Alone:
    """Keep the result for as long as the spool is served."""
    uuid = instance.uuid
    need_lease(context, instance)
    ask_members(context, instance)
    alone = Alone(paths, uuid)
    if alone.other:
        context.log.event(events.SPOOL_COPY, WARNING, path=paths.root, other=alone.other,
                          command=identity_command(paths.root))
    here, noted = Home.of(paths.root), home.load(paths)
    if noted is not None and not here.is_same(noted):
        if home.original(noted, here, uuid):
            context.log.event(events.SPOOL_COPY, WARNING, path=paths.root, other=noted.path,
                              command=identity_command(paths.root))
            return alone
        context.log.event(events.SPOOL_MOVED, REPORT, path=paths.root, before=noted.path,
                          machine=noted.machine if noted.machine != here.machine else None)
    if noted is None or not here.is_same(noted):
        home.settle(paths)
    return alone
