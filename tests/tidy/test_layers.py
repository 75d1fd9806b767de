"""Imports point left: base, format, storage, core, ipc, services, cli; who may use what else."""

from __future__ import annotations

from tests.tidy.tree import imports, product

LAYERS = ("base", "format", "storage", "core", "ipc", "services", "cli")

PUBLIC_LAYER = LAYERS.index("ipc")
"""`from omq import X` is an import of omq.ipc.client, whatever X is."""

STRUCT_USERS = {
    "lib/omq/format/": "the only place that knows bytes",
    "lib/omq/base/checksum.py": "cuts rows for the CRC, whatever is in them",
}

OFFLINE = ("recovery/omqrecover/",)
OFFLINE_MAY_USE = ("omq.base", "omq.format", "omq.storage", "omq.core.redo",
                   "omq.core.births", "omq.core.answers", "omq.core.checkpoint", "omq.cli.common")
"""Repair works without a daemon, on the files alone."""


def _layer(name: str) -> int | None:
    """The layer of the module `name`; None for what is not in a layer."""
    parts = name.split(".")
    if parts[0] != "omq":
        return None
    if len(parts) == 1 or parts[1] not in LAYERS:
        return PUBLIC_LAYER
    return LAYERS.index(parts[1])


def test_imports_point_left() -> None:
    wrong = []
    for source in product():
        folder = source.path.removeprefix("lib/omq/").split("/")[0]
        if not source.path.startswith("lib/omq/") or folder not in LAYERS:
            continue
        for line, name in imports(source):
            layer = _layer(name)
            if layer is not None and layer > LAYERS.index(folder):
                wrong.append(f"{source.path}:{line}: {folder} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_every_package_of_omq_is_a_layer() -> None:
    packages = {
        source.path.split("/")[2] for source in product() if source.path.count("/") > 2
        and source.path.startswith("lib/omq/")
    }
    assert packages <= set(LAYERS)


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
