"""What a frame means is said once: a frame type is named where it is written and in the table
(format.frame_rules); who reads frames asks the table. Reason codes are numbers nowhere else."""

from __future__ import annotations

import ast
import re

from omq.format.journal import FrameType
from tests.tidy.tree import Source, calls, dotted, nodes, product

TABLE = "lib/omq/format/frame_rules.py"
WRITERS = {
    "lib/omq/core/engine/backing_out.py": {"BACKOUT"},
    "lib/omq/core/engine/manager_notes.py": {"READER_UP", "QUEUE", "CHECKPOINT", "OPERATOR", "STOP",
                                     "DEFINE"},
    "lib/omq/core/engine/clients.py": {"READER_UP", "READER_DOWN"},
    "lib/omq/core/engine/expiry.py": {"EXPIRE"},
    "lib/omq/core/engine/gives.py": {"GIVE"},
    "lib/omq/core/engine/in_doubt.py": {"PREPARE", "DONE", "DELETE", "COMMIT"},
    "lib/omq/core/engine/operate.py": {"OPERATOR", "HOLD", "RELEASE", "DELETE", "MOVE"},
    "lib/omq/core/engine/key_pauses.py": {"DEFINE", "UNDEFINE"},
    "lib/omq/core/engine/puts.py": {"PUT"},
    "lib/omq/core/engine/queue_book.py": {"DEFINE", "UNDEFINE"},
    "lib/omq/core/engine/recall.py": {"RELEASE"},
    "lib/omq/core/engine/barrier_ends.py": {"RELEASE"},
    "lib/omq/core/engine/relocation.py": {"RELOCATE"},
    "lib/omq/core/engine/moves.py": {"MOVE"},
    "lib/omq/core/engine/settle.py": {"DONE", "DELETE", "DEFER", "RELEASE_GIVEN", "POISON"},
    "lib/omq/core/engine/suspect_messages.py": {"RELEASE_GIVEN"},
    "lib/omq/fast/attempts.py": {"GIVE"},
    "lib/omq/fast/batch.py": {"PUT"},
    "lib/omq/fast/births.py": {"PUT"},
    "lib/omq/fast/done.py": {"DONE", "PREPARE"},
    "lib/omq/fast/in_doubt.py": {"COMMIT"},
    "lib/omq/ipc/wire/outgoing.py": {"PUT"},  # the head that a submitter fills in
}
CODES = re.compile(r"_?REASON_(?!BYTES|CHAR)\w+")
FIELDS = "lib/omq/format/journal.py"
"""At: places of the fields."""


def _named(source: Source) -> set[str]:
    """The frame types that a file names, as an attribute or by a string."""
    found = {dotted(node).rpartition(".")[2] for node in nodes(source)
             if isinstance(node, ast.Attribute) and dotted(node.value).endswith("FrameType")}
    found |= {str(node.slice.value) for node in nodes(source)
              if isinstance(node, ast.Subscript) and dotted(node.value) == "FrameType"
              and isinstance(node.slice, ast.Constant)}
    return found & set(FrameType.__members__)


def test_a_frame_type_is_named_by_who_writes_it() -> None:
    named = {source.path: found for source in product()
             if source.path != TABLE and (found := _named(source))}
    assert named == WRITERS
    engine = [found for path, found in named.items() if not path.startswith("spark/")]
    assert sum("PUT" in found for found in engine) <= 5  # ADR 0041: the client's batches


def test_no_name_is_given_to_the_number_of_a_type() -> None:
    """`PUT = 1` would be the table's number a second time."""
    wrong = [
        f"{source.path}:{node.lineno}"
        for source in product()
        for node in nodes(source)
        if isinstance(node, ast.Assign) and source.path != FIELDS
        and _is_number(node.value)
        and any(isinstance(target, ast.Name) and target.id.lstrip("_") in FrameType.__members__
                and _value(node.value) == FrameType[target.id.lstrip("_")]
                for target in node.targets)
    ]
    # pool.RecordKind, wire.Operation and the like count otherwise.
    assert [place for place in wrong if not place.startswith("lib/omq/format/")] == []


def test_reason_codes_are_numbers_in_the_table_alone() -> None:
    wrong = []
    for source in product():
        for line, name, call in calls(source):
            wrong += [f"{source.path}:{line}: {name}(reason={_value(word.value)})"
                      for word in call.keywords if word.arg == "reason" and _is_number(word.value)]
        for node in nodes(source):
            if isinstance(node, ast.Assign) and source.path != FIELDS:
                names = [each.id for target in node.targets for each in ast.walk(target)
                         if isinstance(each, ast.Name) and CODES.fullmatch(each.id)]
                if names and any(map(_is_number, ast.walk(node.value))):
                    wrong.append(f"{source.path}:{node.lineno}: {names}")
    assert wrong == []


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int)


def _value(node: ast.expr) -> object:
    return node.value if isinstance(node, ast.Constant) else None
