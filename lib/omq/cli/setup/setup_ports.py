"""The SMTP port of each installed instance: a new one gets its own, two alike are reported.

A configuration that cannot be read is its reader's business: here it counts as having no port.
"""

from __future__ import annotations

from omq.base.config import load_settings
from omq.base.errors import OmqError
from omq.base.paths import conf_of_instance
from omq.base.services_conf import load_services
from omq.base.settings import DEFAULTS
from omq.services.supervise.unit_files import base_name, installed


def address_of(instance: str | None) -> tuple[str, int] | None:
    """Where the SMTP server of an instance listens; None when it has none, or chooses any port."""
    conf = conf_of_instance(instance)
    try:
        settings = load_settings(conf) if conf.is_dir() else DEFAULTS
        services = load_services(conf if conf.is_dir() else None)
    except OmqError:
        return None
    if "smtp" not in services or not services["smtp"].enabled or not settings.smtp_listen_port:
        return None
    return settings.smtp_listen_host, settings.smtp_listen_port


def port_for(instance: str | None) -> int | None:
    """A port for the first omq.conf of a named instance; None: the default one."""
    if instance is None:
        return None
    taken = {DEFAULTS.smtp_listen_port}
    for other in installed():
        found = address_of(other) if other != instance else None
        if found is not None:
            taken.add(found[1])
    return next(port for port in range(DEFAULTS.smtp_listen_port, 65536) if port not in taken)


def clashes(instance: str | None) -> list[str]:
    """One line for each other instance that has the same port."""
    mine = address_of(instance)
    return [
        f"smtp_listen_port {mine[1]} is also that of {base_name(other)}.target: one of the two will"
        f" not start; set another in [mail] of {conf_of_instance(instance)}/omq.conf"
        for other in installed()
        if mine is not None and other != instance and (found := address_of(other)) is not None
        and found[1] == mine[1]]
