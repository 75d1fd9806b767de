"""What a sender wants to be told (RFC 3461): NOTIFY, ORCPT, RET and ENVID, from the command to the
report.

In properties, which all messages made from a mail carry:

    mail.ret     FULL or HDRS                    mail.envid   the sender's own id, as xtext
    mail.dsn     a line for each recipient that has a wish: address, TAB, NOTIFY, TAB, ORCPT; the
                 address is the one that was submitted

Invariants: 1. values are taken only when they decode to printable ASCII: what could begin a line of
a report is refused at the command (501); 2. their length is bounded (100 and 500, RFC 3461 4.2, 5.4
of the extensions' registry); 3. the null sender gets no report.

No errors: a problem is a reply; nonsense in a property counts as absent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

RET: Final = "mail.ret"
ENVID: Final = "mail.envid"
DSN: Final = "mail.dsn"
PROPERTIES: Final = frozenset((RET, ENVID, DSN))
FAILED, DELAYED, DELIVERED, RELAYED = "failed", "delayed", "delivered", "relayed"

_NEVER: Final = "NEVER"
_WORDS: Final = {FAILED: "FAILURE", DELAYED: "DELAY", DELIVERED: "SUCCESS", RELAYED: "SUCCESS"}
_DEFAULT: Final = frozenset((FAILED, DELAYED))
_ENVID_BYTES_MAX: Final = 100
_ORCPT_BYTES_MAX: Final = 500
_XTEXT: Final = re.compile(r"(?:[!-*,-<>-~]|\+[0-9A-F]{2})+")
_TYPE: Final = re.compile(r"[A-Za-z0-9-]{1,32}")


@dataclass(frozen=True, slots=True)
class DsnRequest:
    """Of a recipient's sender. `notify` and `orcpt` are as they were sent; empty: none."""

    notify: str = ""
    orcpt: str = ""

    def wants(self, action: str) -> bool:
        """Whether the sender gets a report of this."""
        if not self.notify:
            return action in _DEFAULT
        return _WORDS[action] in self.notify.split(",")

    @property
    def original(self) -> str:
        """Type and address of ORCPT, decoded, for a report."""
        kind, _, text = self.orcpt.partition(";")
        return f"{kind}; {decoded(text)}" if text else ""

    def takes(self, address: str) -> int:
        """Bytes of a property."""
        if not (self.notify or self.orcpt):
            return 0
        return len(f"{address}{self.notify}{self.orcpt}".encode()) + 3

    def parameters(self) -> str:
        """For a RCPT command, with a space before each."""
        return (f" NOTIFY={self.notify}" if self.notify else "") + (
            f" ORCPT={self.orcpt}" if self.orcpt else "")


_NO_REQUEST: Final = DsnRequest()


def decoded(xtext: str) -> str:
    """What an xtext says; empty: it is none, or says something that is not printable ASCII."""
    if _XTEXT.fullmatch(xtext) is None:
        return ""
    text = re.sub(r"\+([0-9A-F]{2})", lambda found: chr(int(found[1], 16)), xtext)
    return text if text.isascii() and text.isprintable() else ""


def sender_problem(parameters: Mapping[str, str]) -> str:
    """The reply to RET and ENVID that are not taken; empty: they are."""
    if "RET" in parameters and parameters["RET"].upper() not in ("FULL", "HDRS"):
        return "501 5.5.4 RET is FULL or HDRS"
    envid = parameters.get("ENVID")
    if envid is not None and (len(envid) > _ENVID_BYTES_MAX or not decoded(envid)):
        return "501 5.5.4 ENVID is not xtext, or too long"
    return ""


def dsn_request_of(parameters: Mapping[str, str]) -> DsnRequest | str:
    """The wish in the parameters of RCPT, or the reply to wrong ones."""
    if not parameters:
        return _NO_REQUEST
    if set(parameters) - {"NOTIFY", "ORCPT"}:
        return "555 5.5.4 a parameter is not known here"
    notify = parameters.get("NOTIFY", "").upper()
    words = notify.split(",")
    if "NOTIFY" in parameters and (
            len(set(words)) < len(words) or not set(words) <= {_NEVER, *_WORDS.values()}
            or (_NEVER in words and len(words) > 1)):
        return "501 5.5.4 NOTIFY is NEVER, or some of SUCCESS, FAILURE and DELAY"
    orcpt = parameters.get("ORCPT", "")
    kind, _, text = orcpt.partition(";")
    if "ORCPT" in parameters and (
            len(orcpt) > _ORCPT_BYTES_MAX or _TYPE.fullmatch(kind) is None or not decoded(text)):
        return "501 5.5.4 ORCPT is not type;xtext, or too long"
    return DsnRequest(notify, orcpt)


def properties_of(parameters: Mapping[str, str], dsn_requests: Mapping[str, DsnRequest]
                  ) -> dict[str, str]:
    """As a message carries them."""
    found = {name: parameters[key] for name, key in ((RET, "RET"), (ENVID, "ENVID"))
             if key in parameters}
    lines = [f"{address}\t{wish.notify}\t{wish.orcpt}" for address, wish in dsn_requests.items()
             if wish.notify or wish.orcpt]
    return found | ({DSN: "\n".join(lines)} if lines else {})


def dsn_requests_of(properties: Mapping[str, str]) -> dict[str, DsnRequest]:
    """The DSN requests in these properties, by the address that was submitted."""
    found = {}
    for line in properties.get(DSN, "").split("\n"):
        parts = line.split("\t")
        if len(parts) == 3:
            parameters = {name: value for name, value in zip(("NOTIFY", "ORCPT"), parts[1:],
                                                             strict=True) if value}
            wish = dsn_request_of(parameters)
            if isinstance(wish, DsnRequest):
                found[parts[0]] = wish
    return found


def sender_parameters(properties: Mapping[str, str]) -> str:
    """RET and ENVID for a MAIL command, with a space before each; what is wrong is left out."""
    given = {key: properties[name] for name, key in ((RET, "RET"), (ENVID, "ENVID"))
             if name in properties}
    return "" if sender_problem(given) else "".join(
        f" {key}={value}" for key, value in given.items())
