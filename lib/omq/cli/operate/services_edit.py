"""Changes one key of one section of services.conf and leaves every other byte as it is.

The new file appears by rename, with the mode and owner of the old one, and is read back by the real
reader before it counts. A configuration directory without the file gets a copy of the shipped one;
the shipped one itself is never changed.

Errors: BadRequest, ConfigError, DiskError.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from omq.base.config import SERVICES_FILE, load_services
from omq.base.errors import BadRequest
from omq.base.limits import CONF_FILE_BYTES_MAX
from omq.base.paths import shipped_conf
from omq.storage import durable
from omq.storage.files import create_file, read_file

_MODE: Final = 0o644


def set_key(conf_dir: Path, service: str, key: str, value: str) -> None:
    """`key = value` in the section of the service."""
    if conf_dir == shipped_conf():
        raise BadRequest(
            reason=f"the shipped configuration {conf_dir} is not changed; copy {SERVICES_FILE} to"
            " conf/ in the spool or to /etc/omq, restart, and try again")
    load_services(conf_dir)  # a file with a mistake is left to its author
    path = conf_dir / SERVICES_FILE
    source = path if path.exists() else shipped_conf() / SERVICES_FILE
    text = read_file(source, CONF_FILE_BYTES_MAX).decode("utf-8")
    replace_file(path, with_key(text, service, key, value).encode("utf-8"))
    load_services(conf_dir)


def with_key(text: str, section: str, key: str, value: str) -> str:
    """The text with this key in this section: changed where it stands, or a line more."""
    lines = text.split("\n")
    heading = next(number for number, line in enumerate(lines)
                   if re.fullmatch(rf"\s*\[\s*{re.escape(section)}\s*\]\s*", line))
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
