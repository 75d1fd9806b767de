"""The bindings of one exchange, by what a routing key finds of them: a server with many bindings is
asked for another key with each message, in its event loop.

    direct   by their key
    topic    a tree by the first DEPTH words of their key; what is left of a key is compared
    fanout   all of them

The time of a question is that of the bindings that begin as the routing key does, not of all. Nodes
are at most DEPTH for each binding, whatever is in its key.

Invariants: 1. an index has what was put in and not taken out again; 2. a node has something below
it, or a binding.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple, Protocol

DEPTH: Final = 8
_ONE, _ANY = "*", "#"
Words = list[str]


class Binding(NamedTuple):
    """Where messages of this key go: to a queue of omq, or to an exchange (`to`)."""

    key: str
    queue: str = ""
    to: str = ""


class BindingIndex(Protocol):
    """Of the keys of bindings."""

    def put(self, binding: Binding) -> None: ...
    def remove(self, binding: Binding) -> None: ...
    def meant(self, key: str) -> Collection[Binding]:
        """By which a message with this routing key goes on, each once."""
        ...


class Everything:
    """Of a fanout exchange."""

    def __init__(self) -> None:
        self._all: dict[Binding, None] = {}

    def put(self, binding: Binding) -> None:
        self._all[binding] = None

    def remove(self, binding: Binding) -> None:
        self._all.pop(binding, None)

    def meant(self, key: str) -> Collection[Binding]:
        return self._all


class ByKey:
    """Of a direct exchange."""

    def __init__(self) -> None:
        self._keys: dict[str, dict[Binding, None]] = {}

    def put(self, binding: Binding) -> None:
        self._keys.setdefault(binding.key, {})[binding] = None

    def remove(self, binding: Binding) -> None:
        found = self._keys.get(binding.key, {})
        found.pop(binding, None)
        if not found:
            self._keys.pop(binding.key, None)

    def meant(self, key: str) -> Collection[Binding]:
        return self._keys.get(key, {})


class _Node:
    """What begins with the words on the way to it. `any`: the last of these is `#`; `ends`: with
    what is left of their keys."""

    __slots__ = ("any", "below", "ends")

    def __init__(self, *, any_: bool) -> None:
        self.any = any_
        self.below: dict[str, _Node] = {}
        self.ends: dict[Binding, Words] = {}


class ByTopic:
    """Of a topic exchange: words between points; `*` is one word, `#` any number of them (AMQP
    0-9-1, 3.1.3.3)."""

    def __init__(self) -> None:
        self._root = _Node(any_=False)

    def put(self, binding: Binding) -> None:
        node, words = self._root, _words(binding.key)
        for word in words[:DEPTH]:
            node = node.below.setdefault(word, _Node(any_=word == _ANY))
        node.ends[binding] = words[DEPTH:]

    def remove(self, binding: Binding) -> None:
        way, node, words = [], self._root, _words(binding.key)
        for word in words[:DEPTH]:
            if word not in node.below:
                return
            way.append((node, word))
            node = node.below[word]
        node.ends.pop(binding, None)
        for above, word in reversed(way):
            found = above.below[word]
            if found.below or found.ends:
                break
            del above.below[word]

    def meant(self, key: str) -> Collection[Binding]:
        words = _words(key)
        found: dict[Binding, None] = {}
        for left, node in self._reached(words):
            for binding, rest in node.ends.items():
                if binding not in found and (_matches(rest, left) if rest else not left):
                    found[binding] = None
        return found

    def _reached(self, words: Words) -> Iterator[tuple[Words, _Node]]:
        """Nodes, and the words that are left there."""
        here = _with_none({self._root: None})
        for at, word in enumerate(words):
            left = words[at:]
            there: dict[_Node, None] = {}
            for node in here:
                if node.ends and any(node.ends.values()):
                    yield left, node
                if node.any:
                    there[node] = None
                for each in {word, _ONE}:
                    if (below := node.below.get(each)) is not None:
                        there[below] = None
            here = _with_none(there)
        for node in here:
            yield [], node


def _with_none(nodes: dict[_Node, None]) -> dict[_Node, None]:
    """And those that are reached without a word."""
    left = list(nodes)
    while left:
        below = left.pop().below.get(_ANY)
        if below is not None and below not in nodes:
            nodes[below] = None
            left.append(below)
    return nodes


def _words(key: str) -> Words:
    return key.split(".") if key else []


def _matches(wanted: Words, words: Words) -> bool:
    """The time is that of words times words, whatever a stranger has made of the pattern."""
    reached = [True] + [False] * len(words)  # the pattern so far, for the first 0, 1, ... words
    for each in wanted:
        if each == _ANY:
            for at in range(1, len(reached)):
                reached[at] = reached[at] or reached[at - 1]
            continue
        for at in range(len(words), 0, -1):
            reached[at] = reached[at - 1] and each in (_ONE, words[at - 1])
        reached[0] = False
    return reached[-1]
