"""Changes one key of one section of services.conf or queues.conf, and no other byte.

The new file appears by rename, with the mode and owner of the old one, and is read back by the real
reader before it counts. A configuration directory without the file gets a copy of the shipped one;
the shipped one itself is never changed.

Errors: BadRequest, ConfigError, DiskError.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from omq.base.config import QUEUES_FILE, load_queues
from omq.base.errors import BadRequest
from omq.base.limits import CONF_FILE_BYTES_MAX
from omq.base.paths import shipped_conf
from omq.base.services_conf import SERVICES_FILE, load_services
from omq.storage import durable
from omq.storage.files import create_file, read_file

_MODE: Final = 0o644


def set_key(conf_dir: Path, service: str, key: str, value: str) -> None:
    """`key = value` in the section of the service."""
    _set(conf_dir / SERVICES_FILE, load_services, service, key, value)


def set_queue_key(conf_dir: Path, queue: str, key: str, value: str) -> None:
    """`key = value` in the section of the queue, which is made if it has none (POISON)."""
    _set(conf_dir / QUEUES_FILE, load_queues, queue, key, value)


def _set(path: Path, load: Callable[[Path], object], section: str, key: str, value: str) -> None:
    if path.parent == shipped_conf():
        raise BadRequest(
            reason=f"the shipped configuration {path.parent} is not changed; copy {path.name} to"
            " conf/ in the spool or to /etc/omq, restart, and try again")
    load(path.parent)  # a file with a mistake is left to its author
    source = path if path.exists() else shipped_conf() / path.name
    text = read_file(source, CONF_FILE_BYTES_MAX).decode("utf-8")
    replace_file(path, with_section_key(text, section, key, value).encode("utf-8"))
    load(path.parent)


def _heading(section: str) -> re.Pattern[str]:
    return re.compile(rf"(?m)^\s*\[\s*{re.escape(section)}\s*\]\s*$")


def with_section_key(text: str, section: str, key: str, value: str) -> str:
    """The same as `with_key`; a section that is not there is added at the end."""
    if not _heading(section).search(text):
        text = text.rstrip("\n") + f"\n\n[{section}]\n"
    return with_key(text, section, key, value)


def with_key(text: str, section: str, key: str, value: str) -> str:
    """The text with this key in this section: changed where it stands, or a line more."""
    lines = text.split("\n")
    heading = next(number for number, line in enumerate(lines)
                   if _heading(section).fullmatch(line))
    wanted = f"{key} = {value}"
    for number in range(heading + 1, len(lines)):
        if lines[number].lstrip().startswith("["):
            break
        if re.match(rf"\s*{re.escape(key)}\s*=", lines[number]):
            lines[number] = wanted
            return "\n".join(lines)
    lines.insert(heading + 1, wanted)
    return "\n".join(lines)


def replace_file(path: Path, data: bytes, mode: int = _MODE) -> None:
    """The file with these bytes; never half, and never for a moment with the wrong owner."""
    temporary = path.with_name(f"{path.name}.new")
    old = durable.status(path)
    file = create_file(temporary, replace=True)
    try:
        file.write([data], 0, new=True)
        os.fchmod(file.fd, mode if old is None else old.st_mode & 0o7777)
        if old is not None and os.geteuid() == 0:
            os.fchown(file.fd, old.st_uid, old.st_gid)
        file.sync_all(new=True)
        durable.rename(temporary, path, new=True)
    finally:
        file.close()
