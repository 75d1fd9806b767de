"""The shipped configuration explains every key, and says what the code says."""

from __future__ import annotations

import re

import pytest

from omq.base import config, services_conf
from omq.base.authority import ACTIONS
from omq.base.settings import KEYS
from omq.base.settings_file import render
from tests.tidy.tree import ROOT, product

CONF = ROOT / "conf"
WHOLE = ROOT / "lib/omq/services/manager/queue_manager.py"
"""While this does not exist the tree is not whole, and what nobody reads yet is not a mistake."""


def test_omq_conf_is_printed_from_the_table() -> None:
    shipped = (CONF / "omq.conf").read_text(encoding="utf-8")
    assert shipped == render(), "run: python -m omq.base.settings_file > conf/omq.conf"


@pytest.mark.parametrize("name", KEYS)
def test_every_key_of_omq_conf_is_explained(name: str) -> None:
    lines = (CONF / "omq.conf").read_text(encoding="utf-8").splitlines()
    (place,) = (at for at, line in enumerate(lines) if line.startswith(f"#{name} ="))
    assert lines[place - 1].startswith("# ")


@pytest.mark.parametrize(
    ("file", "keys"),
    [("queues.conf", config.QUEUE_KEYS), ("services.conf", services_conf.SERVICE_KEYS)],
)
def test_every_key_of_the_tables_is_explained(file: str, keys: tuple[str, ...]) -> None:
    text = (CONF / file).read_text(encoding="utf-8")
    for key in keys:
        assert re.search(rf"^# {key} = .*  \S", text, re.MULTILINE), f"{file}: {key}"


def test_authority_conf_explains_every_action() -> None:
    text = (CONF / "authority.conf").read_text(encoding="utf-8")
    for action in (*ACTIONS, "all"):
        assert re.search(rf"^#   {action}  ", text, re.MULTILINE), action


def test_files_are_loadable_and_fit_each_other() -> None:
    queues, services = config.load_queues(CONF), services_conf.load_services(CONF)
    config.load_settings(CONF)
    unknown = {service.queue for service in services.values()} - set(queues) - {""}
    assert not unknown
    assert set(config.load_authority(CONF).queues()) <= set(queues)


def test_every_key_is_used() -> None:
    """A key that nothing reads tells the operator a lie."""
    table = {"lib/omq/base/settings.py", "lib/omq/base/settings_file.py"}
    words = {word for source in product() if source.path not in table
             for word in re.findall(r"\w+", source.text)}
    unused = [name for name in KEYS if name not in words]
    assert not unused, f"no code reads {', '.join(unused)}"
