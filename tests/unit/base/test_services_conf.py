"""A services.conf may say only what differs from the shipped one."""

from __future__ import annotations

from pathlib import Path

import pytest

from omq.base.errors import ConfigError
from omq.base.paths import shipped_conf
from omq.base.services_conf import SERVICES_FILE, load_services
from omq.cli.operate.services_edit import set_key

OWN = "[mine]\nnumber = 50\nkind = submitter\nprogram = smtp.server\n"


def load(folder: Path, text: str) -> dict[str, object]:
    (folder / SERVICES_FILE).write_text(text)
    return dict(load_services(folder))


def test_a_change_alone_leaves_the_rest_as_shipped(tmp_path: Path) -> None:
    shipped = load_services(shipped_conf())
    found = load(tmp_path, "[amqp]\nenabled = yes\n")
    assert list(found) == list(shipped)
    assert found.pop("amqp") != shipped.pop("amqp")
    assert found == shipped


def test_a_file_that_says_kinds_is_whole(tmp_path: Path) -> None:
    """As it always was: what it does not name is not there."""
    assert list(load(tmp_path, OWN)) == ["mine"]
    assert list(load(tmp_path, OWN + "[amqp]\nenabled = yes\n")) == ["mine", "amqp"]
    assert load(tmp_path, "") == {}


@pytest.mark.parametrize("text", ["[nobody]\nenabled = yes\n", "[amqp]\nkind = reader\n",
                                  "[amqp]\nenabled = maybe\n", "[amqp]\nnumber = 100\n"])
def test_what_makes_no_sense_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        load(tmp_path, text)


def test_a_command_changes_what_is_not_named(tmp_path: Path) -> None:
    load(tmp_path, "[amqp]\nenabled = yes\n")
    set_key(tmp_path, "local", "auxiliaries", "7")
    found = load_services(tmp_path)
    assert found["local"].auxiliaries == 7 and found["amqp"].enabled
