"""The quick start of two hosts in NETWORK.md, word by word: files and commands come from there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import trustme

from omq.base.services_conf import load_services
from omq.cli.setup import omq_conf
from tests.process.amqp_world import SERVER, needs_proton
from tests.process.channel_world import SENDER, sides
from tests.process.processes import start_program
from tests.tidy.tree import ROOT

needs_proton()

TEXT = (ROOT / "lib/omq/docs/NETWORK.md").read_text(encoding="utf-8")


def block(title: str) -> str:
    found = re.search(rf"<!-- quick start: {title} -->\n```\n(.*?)```", TEXT, re.S)
    assert found is not None, title
    return found[1]


def files(title: str, conf: Path, **words: str) -> dict[str, str]:
    """What a block says, by the name of its file."""
    text = block(title).replace("CONF", str(conf))
    for word, value in words.items():
        text = text.replace(word, value)
    names = re.split(r"^# (\S+)\n", text, flags=re.M)[1:]
    return dict(zip(names[::2], names[1::2], strict=True))


def test_two_hosts(tmp_path: Path) -> None:
    pytest.importorskip("argon2", reason="the extra `amqp`: argon2-cffi")
    with sides(tmp_path, "WEST", "EAST") as (west, east):
        authority = trustme.CA()
        authority.cert_pem.write_to_path(west.conf / "ca.pem")
        own = authority.issue_cert("127.0.0.1")
        (east.conf / "own.pem").write_bytes(
            own.private_key_pem.bytes() + own.cert_chain_pems[0].bytes())
        (east.conf / "own.pem").chmod(0o600)
        east.users("daemon")
        told = files("east, files", east.conf, EASTHOST="127.0.0.1", EASTPORT="0")
        use(east.conf, told)
        assert load_services(east.conf)["amqp"].enabled
        told = files("west, files", west.conf)
        use(west.conf, told)
        (west.conf / "channels").chmod(0o600)
        assert load_services(west.conf)["channels"].enabled
        west.stop()
        west.start()
        west.ready()
        west.start("pool.writer")
        east.stop()
        east.start()
        east.ready()
        east.start("pool.writer", SERVER)
        port = east.await_port("amqps.port")
        west.start(SENDER)
        said = tmp_path / "said"
        for line in block("west, commands").splitlines():
            line = line.replace("EASTHOST", "127.0.0.1").replace("EASTPORT", str(port))
            before, _, command = line.rpartition(" | ")
            program, *words = shlex.split(command)
            place = ["--spool", str(west.root), "--conf", str(west.conf)]
            words = [words[0], *place, *words[1:]] if program == "omq" else [*place, *words]
            if before:  # echo WORD |
                (tmp_path / "body").write_text(before.removeprefix("echo "))
                words.append(str(tmp_path / "body"))
            assert start_program(program, words, output=said).wait() == 0, said.read_text()
        east.await_depth("ORDERS", 1)
        (message,) = east.drain("ORDERS")
        assert message.body == b"hello"
        assert "EAST, which has batch 0" in said.read_text()


def use(conf: Path, told: dict[str, str]) -> None:
    """These files, whole; of omq.conf the sections instead of those that the world made. They are
    what omq conf finds nothing wrong with."""
    for name, text in told.items():
        before = (conf / name).read_text().partition("[amqp]")[0] if name == "omq.conf" else ""
        (conf / name).write_text(before + text)
    assert omq_conf.main(["--conf", str(conf)]) == 0


@pytest.mark.parametrize("title", ["clients, files", "east, files", "west, files"])
def test_the_files_alone_are_a_configuration(tmp_path: Path, title: str,
                                             capsys: pytest.CaptureFixture[str]) -> None:
    told = files(title, tmp_path, EASTHOST="127.0.0.1", EASTPORT="5671")
    for name, text in told.items():
        (tmp_path / name).write_text(text)
    assert omq_conf.main(["--conf", str(tmp_path)]) == 0, capsys.readouterr()
    services = load_services(tmp_path)
    wanted = "channels" if title.startswith("west") else "amqp"
    assert services[wanted].enabled
    assert {"qmgr", "pool", "idel"} <= {each.name for each in services.values() if each.enabled}
