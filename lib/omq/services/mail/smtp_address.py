"""Addresses as the grammar of RFC 5321 has them: strict, so that nothing strange enters the queues.

    local part   dot-string or quoted-string, at most 64 bytes (4.5.3.1.1)
    domain       labels of letters, digits and inner hyphens, at most 63 bytes each, 255 together
                 (4.5.3.1.2); UTF-8 letters where SMTPUTF8 was asked for (RFC 6531 3.3)
    literal      [192.0.2.1] or [IPv6:2001:db8::1] (4.1.3), in place of the domain

A name without a domain is a mailbox of this host: programs of the host write so, and "postmaster"
must be taken in this form (4.5.1). Two liberties, for what the field writes: an underscore in a
domain's labels, and a full stop at its end. No errors: a problem is returned as words.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

LOCAL_BYTES_MAX: Final = 64
DOMAIN_BYTES_MAX: Final = 255
LABEL_BYTES_MAX: Final = 63
PATH_PARAMETERS_MAX: Final = 16

_UTF8 = "\u0080-\U0010ffff"
_ATOM = rf"[A-Za-z0-9!#$%&'*+/=?^_`{{|}}~{_UTF8}-]+"
_DOT_STRING = re.compile(rf"{_ATOM}(?:\.{_ATOM})*")
_QUOTED = re.compile(rf'"(?:[ !#-\[\]-~{_UTF8}]|\\[ -~])*"')
_PAIR = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = re.compile(r'["\\]')
_LABEL = re.compile(rf"[A-Za-z0-9_{_UTF8}](?:[A-Za-z0-9_{_UTF8}-]*[A-Za-z0-9_{_UTF8}])?")
_PATH = re.compile(r"""[ \t]*<(?:@[^\s:<>"]*:)?((?:"(?:[^"\\]|\\.)*"|[^\s<>"])*)>(|[ \t].*)\Z""",
                   re.DOTALL)
_PARAMETER = re.compile(r"([A-Za-z0-9][A-Za-z0-9-]*)(?:=([!-<>-~\u0080-\U0010ffff]+))?")


def grammar_problem(address: str) -> str | None:
    """Why this is not an address of the grammar; None when it is."""
    local, at, domain = address.rpartition("@")
    if not at:
        local, domain = address, ""
    if len(local.encode()) > LOCAL_BYTES_MAX:
        return f"its local part has more than {LOCAL_BYTES_MAX} bytes"
    if _DOT_STRING.fullmatch(local) is None and _QUOTED.fullmatch(local) is None:
        return "its local part is neither words with dots between them nor quoted"
    return domain_problem(domain) if at else None


def plain_local(local: str) -> str:
    """A local part in the one form that all of its spellings have: RFC 5321 4.1.2 makes a backslash
    in a quoted string a mark that the next character means itself, and 4.1.2 and RFC 5322 3.2.4
    the quotes no part of the name. So "al\\ice" and "alice" are alice, and what needs quotes has
    them, with a backslash before a quote and a backslash alone."""
    if len(local) < 2 or local[0] != '"' or local[-1] != '"':
        return local
    inner = _PAIR.sub(r"\1", local[1:-1])
    if _DOT_STRING.fullmatch(inner):
        return inner
    escaped = _ESCAPED.sub(r"\\\g<0>", inner)
    return f'"{escaped}"'


def domain_problem(domain: str) -> str | None:
    """Why this is neither a domain nor an address literal."""
    if domain.startswith("["):
        return None if literal(domain) else "its address literal is not an address"
    if len(domain.encode()) > DOMAIN_BYTES_MAX:
        return f"its domain has more than {DOMAIN_BYTES_MAX} bytes"
    for label in domain.removesuffix(".").split("."):
        if _LABEL.fullmatch(label) is None or len(label.encode()) > LABEL_BYTES_MAX:
            return "its domain has an empty, too long or otherwise wrong label"
    return None


def literal(domain: str) -> str:
    """The address in a literal, in its shortest form; empty when it is none."""
    inner = domain[1:-1] if domain.startswith("[") and domain.endswith("]") else ""
    version6 = inner[:5].lower() == "ipv6:"
    try:
        address = ipaddress.ip_address(inner[5:] if version6 else inner)
    except ValueError:
        return ""
    return str(address) if (address.version == 6) == version6 else ""


def path_of(text: str) -> tuple[str, str] | None:
    """(address, rest after it) of a path in angle brackets; a source route (RFC 5321 appendix C)
    is left out. None: no path."""
    found = _PATH.match(text)
    return None if found is None else (found[1], found[2])


def parameters_of(text: str) -> dict[str, str] | None:
    """ESMTP parameters, names in capitals; None when one is wrong or stands twice."""
    found: dict[str, str] = {}
    if not text:
        return found
    words = text.split()
    for word in words:
        parts = _PARAMETER.fullmatch(word)
        if parts is None or parts[1].upper() in found or len(words) > PATH_PARAMETERS_MAX:
            return None
        found[parts[1].upper()] = parts[2] or ""
    return found
