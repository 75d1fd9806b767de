"""All mistakes of a configuration are told at once, each with its file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from omq.base.authority import load_authority
from omq.base.config import load_queues, load_settings
from omq.base.errors import ConfigError
from omq.base.services_conf import load_services
from omq.cli import launch


def lines(error: ConfigError) -> list[str]:
    """What is said of each, without the folder and without what is allowed."""
    return [each.rpartition("/")[2].partition("; allowed")[0] for each in str(error).split("\n")]


@pytest.mark.parametrize(("load", "name", "text", "told"), [
    (load_queues, "queues.conf",
     "[*]\nlease_s = x\n[A]\nretry_jitter = 0.1\nmax_depth = -1\nwhat = 1\n[b c]\n[C]\n"
     "dead_letter = NONE\nattempts_max = 9999\n",
     ["queues.conf:6: what: unknown key", "queues.conf:7: [b c]: not a queue name",
      "queues.conf:2: lease_s: 'x' is not a whole number",
      "queues.conf:5: max_depth: -1 is out of range",
      "queues.conf:4: retry_jitter: '0.1' is not a whole number",
      "queues.conf:10: attempts_max: 9999 is out of range",
      "queues.conf:9: dead_letter: not a queue of this file"]),
    (load_settings, "omq.conf",
     "[index]\nmessages_max = many\nwatchdog_s = 3\n[none]\nx = 1\n[journal]\nwhat = 1\n"
     "journal_page_bytes = 1\n",
     ["omq.conf:2: messages_max: 'many' is not a whole number",
      "omq.conf:3: watchdog_s: is in [index]", "omq.conf:4: [none]: unknown section",
      "omq.conf:7: what: unknown key in [journal]",
      "omq.conf:8: journal_page_bytes: 1 is out of range"]),
    (load_services, "services.conf",
     "[a]\nauxiliaries = x\nkind = reader\nprogram = a\nqueue = A\nbatch = 0\nnumber = 7\n[b]\n"
     "kind = reader\n[c]\nnumber = 5\nkind = what\nprogram = c\n",
     ["services.conf:2: auxiliaries: 'x' is not a whole number",
      "services.conf:6: batch: 0 is out of range",
      "services.conf:8: [b]: the key number is missing",
      "services.conf:12: kind: 'what' is not known"]),
    (load_authority, "authority.conf",
     "[A]\nsomebody = put\nuser:root = fly\n[b c]\nuser:root = put\n",
     ["authority.conf:2: somebody: not a subject", "authority.conf:3: user:root: 'fly'",
      "authority.conf:4: [b c]: not a queue name"]),
])
def test_each_file_tells_all_of_its_mistakes(
        load: object, name: str, text: str, told: list[str], tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path)  # type: ignore[operator]
    assert sorted(lines(caught.value)) == sorted(told)
    assert caught.value.fields["file"].name == name, "the fields are those of the first"


def test_one_mistake_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "queues.conf").write_text("[*]\nlease_s = x\n[A]\n[B]\n")
    with pytest.raises(ConfigError) as caught:
        load_queues(tmp_path)
    assert lines(caught.value) == ["queues.conf:2: lease_s: 'x' is not a whole number"]


def test_omq_conf_tells_all_of_all_files(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conf = tmp_path / "conf"
    conf.mkdir()
    for name, text in (("queues.conf", "[A]\nmax_depth = x\n[B]\nmax_depth = y\n"),
                       ("omq.conf", "[index]\nmessages_max = z\n"),
                       ("authority.conf", "[A]\nnobody = put\n"),
                       ("services.conf", "[a]\n")):
        (conf / name).write_text(text)
    assert launch.run("omq", ["conf", "--spool", str(tmp_path), "--conf", str(conf)]) == 78
    said = capsys.readouterr().err
    for place in ("queues.conf:2", "queues.conf:4", "omq.conf:2", "authority.conf:2",
                  "services.conf:1"):
        assert place in said, said
