"""Each cause by which something does not move, as each tool tells it: with evidence and command."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from omq.base.config import load_settings
from omq.base.errors import Exit
from omq.cli.look.cause import Severity
from omq.cli.watch.facts import gather
from omq.services.daemon.options import Location
from tests.process.cause_worlds import WORLDS, Said, world
from tests.process.operator_world import Instance

Here = tuple[Instance, Said]


@pytest.fixture(scope="module", params=WORLDS)
def here(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
         ) -> Iterator[Here]:
    """An instance with one of the causes."""
    with world(str(request.param), tmp_path_factory.mktemp("cause")) as made:
        yield made


def _location(made: Instance) -> Location:
    return Location(None, made.paths, made.conf)


def test_omqwhy(here: Here) -> None:
    made, said = here
    told = made.run("omqwhy", said.queue)
    text = told.out + told.err
    assert said.evidence in text and said.command in text, text
    assert "it moves" not in text


def test_omstat(here: Here) -> None:
    made, said = here
    told = made.run("omstat", "-a")
    assert said.evidence in told.out and said.command in told.out, told
    if said.code == "not_primary":  # what such a one is asked is whether it follows
        return


def test_omq_health(here: Here) -> None:
    made, said = here
    told = made.run("omq health")
    assert said.evidence in told.out and said.command in told.out, told
    if said.code == "not_primary":  # what such a one is asked is whether it follows
        return
    assert " is 1\n" not in told.out
    rows = [json.loads(line) for line in made.run("omq health", "--json").out.splitlines()]
    mine = [cause for row in rows for cause in row["causes"] if cause["code"] == said.code]
    assert mine or said.code == "in_doubt", rows
    graver = [cause for cause in gather(_location(made)).causes.all()
              if cause.severity is Severity.CRITICAL]
    if graver:
        assert told.code == Exit.NO


def test_the_console(here: Here) -> None:
    pytest.importorskip("aiohttp", reason="the package aiohttp, of the extra web")
    pytest.importorskip("jinja2", reason="the package jinja2, of the extra web")
    from omq.cli.web import page_head, reading
    from omq.cli.web.snapshots import Snapshots

    made, said = here
    moment = Snapshots(_location(made), load_settings(made.conf)).now()
    rows = page_head.live(moment, None)["n:causes"]
    found = [row for row in rows if said.evidence in row["text"]]
    assert found and any(said.command in hint for row in found for hint in row["hints"]), rows
    if said.code in ("queue_missing", "no_manager", "not_primary"):
        return
    seen = reading.queue(_location(made), said.queue)
    assert any(said.evidence in each.text for each in seen.reasons), seen.reasons
