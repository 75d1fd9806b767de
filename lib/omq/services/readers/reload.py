"""SIGHUP in a reader's process: the configuration is read again, for its service."""

from __future__ import annotations

from dataclasses import replace

from omq.base import event_log, events
from omq.base.config import load_settings
from omq.base.errors import ConfigError
from omq.base.services_conf import load_services
from omq.services.readers.service import Service


def reload_service(service: Service) -> bool:
    """A new context, and Service.reload; False: all is as it was. The parent accepted the files, so
    a refusal is a race with an edit, or of a file of the service's own."""
    old = service.context
    try:
        settings = load_settings(old.conf_dir)
        # The queue is what this reader is registered on: another one needs a restart.
        conf = replace(load_services(old.conf_dir)[old.conf.name], queue=old.conf.queue)
        service.context = replace(old, settings=settings, conf=conf)
        service.reload()
    except (ConfigError, KeyError) as error:
        service.context = old
        old.log.event(events.RELOAD_REFUSED, event_log.ERROR, reason=str(error))
        return False
    return True
