"""A map of addresses in a directory: one search by LDAP for each key; the extra omq-base[maps].

    [ldap]
    url = ldaps://ldap.example.org            ldap:// or ldaps://, with a port if it is another
    base = ou=people,dc=example,dc=org
    filter = (mail={address})                 {address}, {local} and {domain} are the key's
    attribute = maildrop                      whose values are the answer
    bind_dn, password                         empty: anonymous; the file must then be ours alone
    starttls = yes                            with ldap://; certificates are always verified
    ca_file = /path                           empty: the system's authorities

Rules: 1. what a key has of `*`, brackets, a backslash or NUL is escaped (RFC 4515), so it can be
no part of a filter; 2. a base that is not there, a size or time limit of the server, and more
entries than VALUES_MAX are failures, not answers; 3. a password goes over TLS alone, or to this
host. Errors: ConfigError (file, line, key) at the load; MapFailed.
"""

from __future__ import annotations

import ipaddress
import math
import os
import ssl
import stat
import sys
import warnings
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from urllib.parse import urlsplit

from omq.base.config_file import Entry, read_sections
from omq.services.mail.mail_message import split_address
from omq.services.mail.map_errors import MapFailed
from omq.services.mail.map_sources import VALUES_MAX, Check, checked

_KEYS: Final = ("url", "base", "filter", "attribute", "bind_dn", "password", "starttls", "ca_file")
_NEEDED: Final = ("url", "base", "filter", "attribute")
_OTHERS: Final = stat.S_IWGRP | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class Directory:
    """Such a file, checked."""

    host: str
    port: int
    tls: bool  # from the first byte
    starttls: bool
    base: str
    filter: str
    attribute: str
    bind_dn: str = ""
    password: str = ""
    ca_file: str = ""


def load_directory(entry: Entry, path: Path) -> Directory:
    """The file that a line of routes.conf names. ConfigError."""
    library()  # here, where no thread of a look-up is: warnings are the process's
    sections = read_sections(path)
    section = sections.get("ldap")
    if section is None or len(sections) > 1:
        raise entry.error(f"{path} has no section [ldap], or others", "[ldap]")
    section.refuse_unknown(_KEYS)
    entries = section.entries
    for key in _NEEDED:
        if key not in entries or not entries[key].value:
            raise section.error(f"{key} is missing", ", ".join(_NEEDED))
    value = {key: entries[key].value if key in entries else "" for key in _KEYS}
    try:
        url = urlsplit(value["url"])
        tls, port = url.scheme == "ldaps", url.port or (636 if url.scheme == "ldaps" else 389)
    except ValueError as error:
        raise entries["url"].error(str(error), "ldap://host or ldaps://host:port") from error
    if url.scheme not in ("ldap", "ldaps") or not url.hostname or url.path not in ("", "/"):
        raise entries["url"].error("not a server", "ldap://host or ldaps://host:port")
    starttls = "starttls" in entries and entries["starttls"].truth()
    if starttls and tls:
        raise entries["starttls"].error("ldaps:// has TLS from the first byte", "no, or ldap://")
    if not any(each in value["filter"] for each in ("{address}", "{local}")):
        raise entries["filter"].error("it is the same for every address", "(mail={address})")
    if value["password"]:
        if path.stat().st_mode & _OTHERS:
            raise entries["password"].error("others can read or change this file", "mode 0640")
        if not (tls or starttls or _of_this_host(url.hostname)):
            raise entries["password"].error("it would go over the network in plain",
                                            "ldaps://, or starttls = yes")
    if value["ca_file"] and not os.path.isabs(value["ca_file"]):
        raise entries["ca_file"].error("not an absolute path", "/path of a PEM file")
    return Directory(url.hostname, port, tls, starttls, value["base"], value["filter"],
                     value["attribute"], value["bind_dn"], value["password"], value["ca_file"])


def _of_this_host(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def library() -> ModuleType:
    """ldap3. It uses names of pyasn1 that are to go, and says so once, when it is imported."""
    if "ldap3" in sys.modules:
        return sys.modules["ldap3"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return import_module("ldap3")


@dataclass(slots=True)
class LdapMap:
    """One directory. A connection for each look-up: none is left that a server may have dropped."""

    name: str
    directory: Directory
    check: Check

    def look_up(self, key: str, timeout_s: float) -> tuple[str, ...] | None:
        ldap3 = library()
        from ldap3.core.exceptions import LDAPException
        from ldap3.utils.conv import escape_filter_chars

        directory = self.directory
        local, domain = split_address(key)
        seconds = math.ceil(timeout_s)  # a whole number, for a packet and for the server
        wanted = directory.filter
        pieces = {"{address}": key, "{local}": local, "{domain}": domain}
        for number, each in enumerate(pieces):  # in one step: a key may hold another's name
            wanted = wanted.replace(each, f"\0{number}")
        for number, text in enumerate(pieces.values()):
            wanted = wanted.replace(f"\0{number}", escape_filter_chars(text))
        try:
            tls = ldap3.Tls(validate=ssl.CERT_REQUIRED, ca_certs_file=directory.ca_file or None)
            server = ldap3.Server(directory.host, directory.port, use_ssl=directory.tls, tls=tls,
                                  get_info=ldap3.NONE, connect_timeout=timeout_s)
            connection: Any = ldap3.Connection(
                server, directory.bind_dn or None, directory.password or None, read_only=True,
                raise_exceptions=True, auto_referrals=False, receive_timeout=seconds,
                auto_bind=ldap3.AUTO_BIND_NONE)
            try:
                connection.open()
                if directory.starttls:
                    connection.start_tls()
                connection.bind()
                connection.search(directory.base, wanted, attributes=[directory.attribute],
                                  size_limit=VALUES_MAX + 1, time_limit=seconds)
                found = [value for each in connection.response
                         if each.get("type") == "searchResEntry"
                         for value in each["raw_attributes"].get(directory.attribute, ())]
            finally:
                with suppress(LDAPException, OSError):  # what went wrong before is raised
                    connection.unbind()
                if connection.socket is not None:  # of one that was never open
                    connection.socket.close()
        except (LDAPException, OSError, ValueError) as error:
            reason = f"{type(error).__name__}: {error}".strip(": ")
            raise MapFailed(self.name, reason) from error
        try:
            values = [one for each in found for one in each.decode("utf-8").split(",")]
        except UnicodeDecodeError as error:
            raise MapFailed(self.name, "a value is not UTF-8") from error
        return checked(self.name, values, self.check)
