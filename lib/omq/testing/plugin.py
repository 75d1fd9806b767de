"""The plugin of pytest: `omq_instance`, `omq_queues`. Installed with omq-base, quiet until asked.

One instance for a session (under xdist: for each worker), started at the collection's end when
a collected test wants it, in a temporary folder that goes with it. Each test finds empty queues,
those of the project's queues.conf alone, and the true time. `omq_conf` in the configuration of
pytest names the folder with queues.conf; OMQ_SPOOL tells `omq.connect()` which instance it is.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from omq.testing.instance import LiveInstance
    from omq.testing.taking import Taken
    from omq.testing.world import World

_FIXTURE: Final = "_omq_session"
_WORLD: Final = pytest.StashKey["World"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The folder of the project's configuration."""
    parser.addini("omq_conf", "folder with queues.conf of the test instance", default="")


def pytest_collection_finish(session: pytest.Session) -> None:
    """The host imports while pytest prepares the first test. The test that wants it reports what is
    wrong, not this hook."""
    if session.config.option.collectonly:
        return
    if any(_FIXTURE in getattr(item, "fixturenames", ()) for item in session.items):
        from omq.base.errors import OmqError

        with suppress(OmqError):
            session.config.stash[_WORLD] = _world()


def pytest_unconfigure(config: pytest.Config) -> None:
    """No test has used it."""
    if (world := config.stash.get(_WORLD, None)) is not None:
        world.close()
        shutil.rmtree(world.folder, ignore_errors=True)


def _world() -> World:
    """A host in a folder of its own: a short path, for that of a socket has 107 bytes at most.
    FileNotWritten, ExtraMissing."""
    from omq.base.errors import FileNotWritten
    from omq.testing.world import World

    try:
        folder = Path(tempfile.mkdtemp(prefix="omq-test-"))
    except OSError as error:
        raise FileNotWritten(path=f"a folder for the test instance in {error.filename or 'TMPDIR'}",
                             reason=error.strerror or str(error)) from error
    try:
        return World(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


@pytest.fixture(scope="session")
def _omq_session(request: pytest.FixtureRequest) -> Iterator[LiveInstance]:
    """The session's instance."""
    stash = request.config.stash
    world = stash[_WORLD] if _WORLD in stash else _world()
    if _WORLD in stash:
        del stash[_WORLD]
    from omq.testing.instance import LiveInstance

    given = str(request.config.getini("omq_conf"))
    conf = request.config.rootpath / given if given else None
    try:
        with LiveInstance(world, conf) as live, pytest.MonkeyPatch.context() as patch:
            patch.setenv("OMQ_SPOOL", str(live.spool))
            patch.delenv("OMQ_CONF", raising=False)
            yield live
    finally:
        shutil.rmtree(world.folder, ignore_errors=True)


@pytest.fixture
def omq_instance(_omq_session: LiveInstance) -> Iterator[LiveInstance]:
    """A running instance with empty queues (omq.testing.instance.LiveInstance)."""
    yield _omq_session
    _omq_session.clean()


class Queues:
    """Queues of one test: `omq_queues("ORDERS", attempts_max=2)` defines one and gives its name."""

    def __init__(self, live: LiveInstance) -> None:
        self._live = live

    def __call__(self, name: str, **keys: Any) -> str:
        """A local queue with these keys of queues.conf."""
        self._live.queues.define(name, **keys)
        return name

    def drain(self, name: str, call: Callable[..., object] | None = None, give: str = "json"
              ) -> list[Taken]:
        """As LiveInstance.drain."""
        return self._live.drain(name, call, give)

    def bodies(self, name: str) -> list[bytes]:
        """What lies on it, in the order of hand-out, untouched."""
        with self._live.connect("look") as connection:
            return [row.body for row in connection.browse(name)]


@pytest.fixture
def omq_queues(omq_instance: LiveInstance) -> Queues:
    """Defines queues for one test."""
    return Queues(omq_instance)
