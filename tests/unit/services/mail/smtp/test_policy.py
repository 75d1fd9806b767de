"""What a policy remembers of recipients, and what it asks for each time."""

from __future__ import annotations

from pathlib import Path

from omq.base.config import load_settings
from omq.services.mail.smtp_policy import RECIPIENTS_KNOWN_MAX, Policy, load_policy


def policy_of(folder: Path, routes: str) -> Policy:
    (folder / "omq.conf").write_text("[mail]\nhostname = mail.example.org\n")
    (folder / "routes.conf").write_text(routes)
    return load_policy(load_settings(folder), folder, folder)


def test_a_recipient_is_resolved_once_and_as_routes_do(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, "[local]\ndomains = example.org\nusers = alice\n")
    for address in ("alice@example.org", "nobody@example.org", "bob@example.com"):
        first = policy.resolved(address)
        assert first == (policy.routes.accepts(address), policy.routes.resolve(address))
        assert policy.resolved(address) is first


def test_users_of_the_system_are_asked_for_each_time(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, "[local]\ndomains = example.org\nusers = passwd:\n")
    assert policy.routes.users_of_system
    policy.resolved("root@example.org")
    assert not policy.known


def test_names_of_a_list_take_no_memory(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, "[local]\ndomains = example.org\ndelimiter = +\n"
                                 "[aliases]\nall = alice, bob\n")
    found = policy.resolved("all+1@example.org")
    assert len(found[1][0]) == 2 and not policy.known


def test_what_is_remembered_is_bounded(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, "[local]\ndomains = example.org\n")
    for number in range(2 * RECIPIENTS_KNOWN_MAX + 1):
        policy.resolved(f"user{number}@example.com")
    assert 0 < len(policy.known) <= RECIPIENTS_KNOWN_MAX
