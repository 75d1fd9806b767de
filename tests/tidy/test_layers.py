"""Imports point left, from cli down to base; who may use what else."""

from __future__ import annotations

import ast
import re

from tests.tidy.tree import ROOT, dotted, imports, nodes, product

LAYERS = ("base", "format", "storage", "core", "fast", "amqp", "ipc", "aio", "tasks",
          "services", "cli", "testing")

ROOMS: dict[str, dict[str, tuple[str, ...]]] = {
    "core": {
        "index": (),
        "select": (),
        "engine": ("index",),
        "redo": ("index", "engine"),
        "judge": (),
        "load": ("index", "engine", "redo", "judge"),
        "look": ("index", "engine", "load", "select"),
        "history": ("index", "engine", "redo"),
        "standby": ("engine", "redo", "judge", "history"),
        "check": ("index", "engine", "redo", "judge", "load", "history"),
    },
    "ipc": {"wire": (), "client": ("wire",), "server": ("wire",)},
    "services": {
        "daemon": (),
        "readers": ("daemon",),
        "pool": ("daemon",),
        "manager": ("daemon", "pool", "standby"),
        "delivery": ("daemon", "readers"),
        "network": ("daemon",),
        "mail": ("daemon", "readers", "delivery", "network"),
        "channel": ("daemon", "network"),
        "standby": ("daemon", "pool", "network", "channel", "supervise"),
        "ship": ("daemon", "pool", "standby"),
        "amqp": ("daemon", "network", "channel", "amqp091"),
        "amqp091": ("daemon", "network", "amqp"),
        "supervise": ("daemon",),
        "trigger": ("daemon", "readers", "supervise"),
        "schedule": ("daemon", "readers"),
    },
    "cli": {
        "operate": ("look",),
        "look": ("operate", "watch"),
        "watch": ("look", "operate"),
        "web": ("look", "operate", "watch"),
        "queue": ("operate",),
        "setup": ("operate", "queue", "watch"),
    },
}
"""The rooms of a layer, each with those that it may import. Modules beside the rooms are for all of
the layer."""

LEAVES: dict[str, tuple[str, ...]] = {"core": ("omq.fast.lane", "omq.fast.party",
                                           "omq.fast.waiter")}
"""Modules of a layer to the right that a layer may import all the same: types, which import nothing
but each other and omq.base."""

PUBLIC_LAYER = LAYERS.index("ipc")
"""`from omq import X` is an import of omq.ipc.client.connection, whatever X is."""

STRUCT_USERS = {
    "lib/omq/format/": "the only place that knows bytes",
    "lib/omq/base/checksum.py": "cuts rows for the CRC, whatever is in them",
    "lib/omq/services/network/source.py": "asks the kernel in its own format",
}

OFFLINE = ("recovery/omqrecover/",)
OFFLINE_MAY_USE = ("omq.base", "omq.format", "omq.storage", "omq.core.redo", "omq.core.load",
                   "omq.core.judge", "omq.services.ship.archiving", "omq.services.ship.places",
                   "omq.services.ship.restoring", "omq.cli.common")
"""Repair works without a daemon, on the files alone; a restore reads an object store, too."""


def _layer(name: str) -> int | None:
    """The layer of the module `name`; None for what is not in a layer."""
    parts = name.split(".")
    if parts[0] != "omq":
        return None
    if len(parts) == 1 or parts[1] not in LAYERS:
        return PUBLIC_LAYER
    return LAYERS.index(parts[1])


def _room(name: str) -> tuple[str, str] | None:
    """(layer, room) of the module `name`; None for what is in no room."""
    parts = name.split(".")
    if len(parts) < 4 or parts[0] != "omq" or parts[2] not in ROOMS.get(parts[1], {}):
        return None
    return parts[1], parts[2]


def test_imports_point_left() -> None:
    wrong = []
    for source in product():
        folder = source.path.removeprefix("lib/omq/").split("/")[0]
        if not source.path.startswith("lib/omq/") or folder not in LAYERS:
            continue
        for line, name in imports(source):
            layer = _layer(name)
            if layer is not None and layer > LAYERS.index(folder) \
                    and not _is_leaf(folder, name):
                wrong.append(f"{source.path}:{line}: {folder} imports {name}")
    assert not wrong, "\n".join(wrong)


def _is_leaf(folder: str, name: str) -> bool:
    return any(name == leaf or name.startswith(f"{leaf}.") for leaf in LEAVES.get(folder, ()))


def test_leaves_import_nothing_but_each_other() -> None:
    leaves = {leaf for each in LEAVES.values() for leaf in each}
    wrong = [
        f"{source.path}:{line}: {name}"
        for source in product()
        if source.path.removeprefix("lib/").removesuffix(".py").replace("/", ".") in leaves
        for line, name in imports(source)
        if name.split(".")[0] == "omq" and not name.startswith(("omq.base", *leaves))
    ]
    assert not wrong, "\n".join(wrong)


def test_every_package_of_omq_is_a_layer() -> None:
    packages = {
        source.path.split("/")[2] for source in product() if source.path.count("/") > 2
        and source.path.startswith("lib/omq/")
    }
    assert packages <= set(LAYERS)


def test_rooms_import_those_before_them() -> None:
    wrong = []
    for source in product():
        room = _room(source.path.removeprefix("lib/").removesuffix(".py").replace("/", "."))
        if room is None:
            continue
        layer, name = room
        for line, imported in imports(source):
            other = _room(imported)
            if other is not None and other[0] == layer and other[1] != name \
                    and other[1] not in ROOMS[layer][name]:
                wrong.append(f"{source.path}:{line}: {layer}.{name} imports {imported}")
    assert not wrong, "\n".join(wrong)


def test_every_folder_of_a_layer_is_a_room() -> None:
    found = {(parts[2], parts[3]) for source in product()
             if source.path.startswith("lib/omq/") and len(parts := source.path.split("/")) > 4}
    assert found == {(layer, room) for layer, rooms in ROOMS.items() for room in rooms}


def test_the_map_of_architecture_names_every_room() -> None:
    text = (ROOT / "lib/omq/docs/ARCHITECTURE.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)\.(\w+)` \|", text, re.MULTILINE)
    assert sorted(listed) == sorted((layer, room) for layer, rooms in ROOMS.items()
                                    for room in rooms)


def test_only_the_format_layer_knows_bytes() -> None:
    wrong = [
        f"{source.path}:{line}"
        for source in product()
        for line, name in imports(source)
        if name.split(".")[0] == "struct" and not source.path.startswith(tuple(STRUCT_USERS))
    ]
    assert not wrong, f"struct is imported in {wrong}"


def test_offline_tools_do_not_need_the_daemons() -> None:
    wrong = [
        f"{source.path}:{line}: {name}"
        for source in product()
        if source.path.startswith(OFFLINE)
        for line, name in imports(source)
        if name.split(".")[0] == "omq" and not name.startswith(OFFLINE_MAY_USE)
    ]
    assert not wrong, "\n".join(wrong)


INDEX_WRITERS = ("lib/omq/core/engine/", "lib/omq/core/load/", "lib/omq/core/index/",
                 "lib/omq/fast/")
"""Those who may store into the tables of an index. core.load fills the index that a start
makes, omq.fast stands in front of the engine."""
TABLES = ("t", "index", "tables", "v", "counters")
HANDS = ("core", "block")
"""What an engine has that changes the index, or the journal that the index follows."""


def test_only_the_engine_writes_the_index() -> None:
    """Who serves clients has `Engine.index`, which refuses to be written, and the engine's methods;
    nobody but the engine reaches through it for what it writes."""
    wrong = []
    for source in product():
        if not source.path.startswith("lib/omq/") or source.path.startswith(INDEX_WRITERS):
            continue
        for node in nodes(source):
            if isinstance(node, ast.Attribute) and node.attr in HANDS and dotted(
                    node.value).split(".")[-1].lstrip("_") == "engine" and not (
                    source.path.startswith("lib/omq/core/check/")):
                wrong.append(f"{source.path}:{node.lineno}: reaches for the engine's {node.attr}")
            if isinstance(node, (ast.Assign, ast.AugAssign)):
                targets: list[ast.expr] = (list(node.targets) if isinstance(node, ast.Assign)
                                           else [node.target])
                wrong += [f"{source.path}:{node.lineno}: stores into {name}"
                          for name in map(_table, _each(targets)) if name]
    assert not wrong, "\n".join(wrong)


def _each(targets: list[ast.expr]) -> list[ast.expr]:
    """Targets of an assignment, those of tuples one by one."""
    return [leaf for target in targets
            for leaf in (_each(target.elts) if isinstance(target, ast.Tuple) else [target])]


def _table(target: ast.expr) -> str:
    """`t.m_file` of `t.m_file[slot] = ...`; "" of what is no store into a column of an index."""
    if not isinstance(target, ast.Subscript):
        return ""
    value = target.value
    if isinstance(value, ast.Subscript):  # v["m_file"][slots]
        value = value.value
    name = dotted(value)
    return name if set(name.split(".")) & set(TABLES) else ""
