"""The two distributions, their hashes, and what packagers are given agree with one another."""

from __future__ import annotations

import re
import tomllib

import omq
from omq.cli.launch import EXTRAS
from tests.tidy.tree import ROOT

BASE = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SUITE = tomllib.loads((ROOT / "tools/suite/pyproject.toml").read_text(encoding="utf-8"))["project"]
REQUIREMENTS = (ROOT / "requirements.txt").read_text(encoding="utf-8")
CONSTRAINTS = (ROOT / "constraints.txt").read_text(encoding="utf-8")


def _name(requirement: str) -> str:
    return re.split(r"[<>=\[ ]", requirement)[0].lower().replace("_", "-")


def _pins(text: str) -> dict[str, str]:
    return {_name(name): version for name, version in
            re.findall(r"^([\w.-]+)==([\w.]+)", text, re.MULTILINE)}


def test_the_suite_is_the_base_of_the_same_version_and_its_extras() -> None:
    asked = f"omq-base[suite]=={omq.__version__}"
    assert (SUITE["version"], SUITE["dependencies"]) == (omq.__version__, [asked])
    for extra, wanted in SUITE["optional-dependencies"].items():
        assert wanted == [f"omq-base[{extra}]=={omq.__version__}"]
        assert extra in BASE["optional-dependencies"]


def test_both_say_the_same_of_themselves() -> None:
    for key in ("requires-python", "license", "license-files", "authors", "keywords"):
        assert BASE[key] == SUITE[key], key
    texts = {(ROOT / folder / "LICENSE").read_bytes() for folder in (".", "tools/suite")}
    assert len(texts) == 1 and b"Apache License" in texts.pop()


def test_a_client_needs_no_numpy() -> None:
    heavy = {"numpy", "zstandard", "aiosmtpd"}
    assert heavy.isdisjoint(map(_name, BASE["dependencies"]))
    assert heavy <= set(map(_name, BASE["optional-dependencies"]["suite"]))
    assert {name for name, what in EXTRAS.items() if what == SUITE["name"]} == heavy


def test_production_has_the_tested_versions_with_hashes() -> None:
    pins, tested = _pins(REQUIREMENTS), _pins(CONSTRAINTS)
    wanted = (*BASE["dependencies"], *BASE["optional-dependencies"]["suite"])
    assert {_name(each) for each in wanted} <= set(pins)
    assert {name: tested.get(name) for name in pins} == pins
    blocks = re.split(r"^(?=\w)", REQUIREMENTS.partition("\n\n")[2], flags=re.MULTILINE)
    assert len([block for block in blocks if block]) == len(pins)
    assert all("--hash=sha256:" in block for block in blocks if block)


def test_the_debian_package_names_the_licence_of_all_that_it_has() -> None:
    text = (ROOT / "tools/debian/copyright").read_text(encoding="utf-8").replace("_", "-")
    assert [name for name in _pins(REQUIREMENTS) if name not in text] == []


def test_what_a_source_distribution_takes_exists() -> None:
    lines = (ROOT / "MANIFEST.in").read_text(encoding="utf-8").splitlines()
    for folder in re.findall(r"^graft (\S+)", "\n".join(lines), re.MULTILINE):
        assert (ROOT / folder).is_dir(), folder


def test_no_address_is_made_up() -> None:
    """omq has no public home yet: an address would be somebody else's, or nobody's."""
    assert "urls" not in BASE and "urls" not in SUITE
    assert all("email" not in author for author in BASE["authors"])
    assert "Maintainer: @MAINTAINER@" in (ROOT / "tools/debian/control").read_text("utf-8")
