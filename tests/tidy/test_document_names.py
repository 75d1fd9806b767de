"""Names and numbers in the documents are there: each key, column, test or metric in code style,
each number of an event, and which states count as protected."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from omq.base.events import CATALOGUE
from tests.tidy.tree import ROOT

DOCS: Final = ROOT / "lib/omq/docs"
PAGES: Final = [*(ROOT / name for name in ("README.md", "RELEASE_NOTES.md", "CONTRIBUTING.md",
                                           "SECURITY.md")), *sorted(DOCS.glob("*.md"))]
SOURCES: Final = ("lib", "tools", "recovery", "spark", "tests", "units", "examples", "containers")
NAME: Final = re.compile(r"`([a-z][a-z0-9]*(?:_[a-z0-9]+)+)`")
EVENTS: Final = re.compile(r"(?:\b[Ee]vents?|\bOM) (\d{4}(?:(?:,? (?:and|to) |, )\d{4})*)")
OTHERS: Final = frozenset((
    "acl_smtp_data", "acl_smtp_mime", "address_verify_map", "body_checks",
    "bounce_message_file", "bounce_template_file", "callout_positive_expire",
    "default_destination_rate_delay", "delay_warning_time", "dsn_from", "headers_rewrite",
    "hosts_require_dane", "lmtp_tcp_port", "mailbox_size_limit", "mime_header_checks",
    "nested_header_checks", "non_smtpd_milters", "postscreen_greet_wait", "recently_deleted",
    "reject_unverified_recipient", "remote_max_parallel", "sender_dependent_relayhost_maps",
    "serialize_hosts", "smtp_dns_support_level", "smtp_generic_maps", "smtp_ratelimit_hosts",
    "smtp_tls_policy_maps", "smtpd_client_message_rate_limit", "smtpd_discard_ehlo_keywords",
    "smtpd_forbid_bare_newline", "smtpd_milters", "smtpd_proxy_filter",
    "smtpd_recipient_restrictions", "smtputf8_enable",
    "test_pidbox_reset_after_repeated_control_errors", "test_revoked_by_headers_simple_canvas",
    "test_trace_log_arguments", "transport_destination_concurrency_limit",
    "unverified_recipient_reject_code", "virtual_alias_maps"))
"""Keys and tests of Postfix, Exim, Celery, kombu and the kernel."""
MADE: Final = frozenset(("messages_whole",))
"""Of the name of a table."""


def prose(page: Path) -> str:
    """A document without blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


@cache
def known() -> frozenset[str]:
    """Every word of the sources, in small letters: names of columns are those of constants."""
    found: set[str] = set()
    for place in SOURCES:
        for path in (ROOT / place).rglob("*"):
            if path.suffix in (".py", ".conf", ".service", ".socket", ".yaml", ".toml") and (
                    path != Path(__file__)):
                found.update(re.findall(r"[a-z]\w*", path.read_text("utf-8").lower()))
    return frozenset(found)


def unknown(text: str) -> Iterator[str]:
    """Names of a text that nothing has."""
    for name in NAME.findall(text):
        if name not in OTHERS | MADE | known() and not (
                name.startswith("omq_") and is_metric(name.removeprefix("omq_"))):
            yield name


def is_metric(name: str) -> bool:
    """Whether the sources have it, with or without `_total`, or a group's name and the rest."""
    words = name.removesuffix("_total").split("_")
    return any("_".join(words[at:]) in known() and ("_".join(words[:at]) or "omq") in known()
               for at in range(len(words)))


def no_events(text: str) -> list[int]:
    """Numbers of events of a text that are none."""
    return [int(number) for named in EVENTS.findall(text) for number in re.findall(r"\d{4}", named)
            if int(number) not in CATALOGUE]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_in_code_style_exist(page: Path) -> None:
    assert list(unknown(prose(page))) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_events_that_are_named_exist(page: Path) -> None:
    assert no_events(prose(page)) == []


def test_what_does_not_exist_is_found() -> None:
    assert list(unknown("the key `unix_expiry_s`, `unix_retry_expiry_s`, `member_failed`")) == [
        "unix_expiry_s"]
    assert list(unknown("`omq_manager_limit_keys` and `omq_manager_limit_kyes_total`")) == [
        "omq_manager_limit_kyes_total"]
    assert no_events("events 1530 to 1537, and 1549; OM 1570, 1571; event 1405") == [1549]


def test_other_programs_names_are_still_named() -> None:
    named = {name for page in PAGES for name in NAME.findall(prose(page))}
    assert OTHERS - named == set()


def test_standby_says_which_states_are_protected() -> None:
    """As `omq standby status` judges them."""
    (said,) = re.findall(r"exit 1 unless it is ([^)]*)\)", (DOCS / "STANDBY.md").read_text("utf-8"))
    source = (ROOT / "lib/omq/cli/operate/standby_status.py").read_text("utf-8")
    (judged,) = re.findall(r'\["state"\] in \(([^)]*)\)', source)
    assert re.findall(r"`(\w+)`", said) == re.findall(r'"(\w+)"', judged)
