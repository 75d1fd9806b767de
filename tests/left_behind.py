"""What a test leaves behind in this very process is found in another test.

What is there is compared when a module ends, for fixtures may live as long as their module; what
the fixtures of a whole session made is theirs. The test that is named is the one after which it was
first seen.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable
from collections.abc import Set as AbstractSet
from typing import Any, Final, Generic, TypeVar

import pytest

_LONG_LIVED: Final = ("session", "package")
_APART: Final = ("tests/spark/", "tests/system/")
"""The JVM's bridge keeps connections and threads for all modules; a whole machine runs beside the
other."""
Thing = TypeVar("Thing", bound=Hashable)


class LeftBehind(Generic[Thing]):
    """A plugin: fails the last test of a module that left something of a kind."""

    title = ""

    def __init__(self) -> None:
        self._known: set[Thing] = set()
        self._seen: dict[Thing, str] = {}
        self._module = ""

    def now(self) -> AbstractSet[Thing]:
        """What is there."""
        raise NotImplementedError

    def end(self, left: AbstractSet[Thing]) -> None:
        """Give what may end by itself the time for it."""
        raise NotImplementedError

    def line(self, thing: Thing) -> str:
        """For people, sorted."""
        raise NotImplementedError

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]
                             ) -> Generator[None, object, object]:
        if fixturedef.scope not in _LONG_LIVED:
            return (yield)
        before = self.now()
        try:
            return (yield)
        finally:
            self._known |= self.now() - before

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        module = _module(item)
        if module != self._module:
            self._module, self._known, self._seen = module, set(self.now()), {}
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None
                                ) -> Generator[None, object, object]:
        result = yield
        for each in self._new():
            self._seen.setdefault(each, item.nodeid)
        if nextitem is None or _module(nextitem) != self._module:
            left = self._new()
            if left and not self._module.startswith(_APART):
                self.end(left)
                left = self._new()
                if left:
                    pytest.fail(f"{self.title}:\n" + "\n".join(sorted(
                        f"  {self.line(each)}, first seen after {self._seen.get(each, item.nodeid)}"
                        for each in left)), pytrace=False)
        return result

    def _new(self) -> AbstractSet[Thing]:
        return self.now() - self._known


def _module(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]
