"""Bodies that programs send: JSON, MessagePack and models of pydantic, with their content type.

    from omq import codec

    codec.put(connection, "ORDERS", {"id": 7})                     JSON
    codec.put(connection, "ORDERS", Order(id=7))                   a model: JSON
    codec.put(connection, "ORDERS", {"id": 7}, kind=codec.MSGPACK)
    for message in reader:
        order = codec.decode(message)                              by its content type
        order = codec.decode(message, Order)                       validated by the model

The content type is the property `amqp.content-type`, which is that of AMQP 1.0 for clients of other
languages; omqdump and the console show what it says decoded. A body is data: nothing of it is
executed, no reference of a schema is fetched.

A queue asks for a schema by a file, `schemas/QUEUE.json` in the configuration's folder (JSON Schema
2020-12, or what its $schema says). `put` and `outgoing` check it in the program that sends; who
puts bytes past this module is not checked. The file is read again when it has changed.

Errors: BodyRefused (the path in the body, and the rule), SchemaWrong (file and reason), BodyNotRead
(content type and reason), BadArgument (a value that cannot be written), ExtraMissing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, overload

from omq.base.errors import BodyNotRead, BodyRefused, ExtraMissing, SchemaWrong
from omq.base.names import escape
from omq.ipc.wire import arguments

if TYPE_CHECKING:
    from omq.format.property_values import Value
    from omq.ipc.client.connection import Connection
    from omq.ipc.wire.outgoing import Outgoing

JSON: Final = "application/json"
MSGPACK: Final = "application/msgpack"
KINDS: Final = (JSON, MSGPACK)
_MSGPACK_TOO: Final = ("application/x-msgpack", "application/vnd.msgpack")
CONTENT_TYPE: Final = "amqp.content-type"
SCHEMAS: Final = "schemas"
_SAID_MAX: Final = 300

T = TypeVar("T")


class HasBody(Protocol):
    """A message in hand, one that is browsed, or a reply."""

    @property
    def body(self) -> bytes: ...
    @property
    def properties(self) -> Mapping[str, Any]: ...


def put(connection: Connection, queues: str | Sequence[str], value: object, *, kind: str = JSON,
        **more: Any) -> str:
    """Put a value; the id. `more`: the arguments of Connection.put but the body."""
    names = [queues] if isinstance(queues, str) else list(queues)
    check(value, names, _conf(connection))
    properties = {**(more.pop("properties", None) or {}), CONTENT_TYPE: _kind(kind)}
    return connection.put(queues, encode(value, kind), properties=properties, **more)


def outgoing(connection: Connection, queue: str, value: object, *, kind: str = JSON,
             message: Outgoing | None = None) -> Outgoing:
    """The same as a message for put_many, units and `move(new=)`: `message` with this body."""
    from omq.ipc.wire.outgoing import Outgoing  # Linux alone has it

    check(value, [queue], _conf(connection))
    given = message or Outgoing(queues=(queue,))
    properties: dict[str, Value] = {**(given.properties or {}), CONTENT_TYPE: _kind(kind)}
    return replace(given, body=encode(value, kind), properties=properties)


def encode(value: object, kind: str = JSON) -> bytes:
    """The body. BadArgument with the reason."""
    value = _plain(value)
    try:
        if _kind(kind) == JSON:
            return json.dumps(value, ensure_ascii=False, allow_nan=False,
                              separators=(",", ":")).encode()
        body: bytes = _package("msgpack").packb(value, datetime=True)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise arguments.wrong("value", value, f"{kind} cannot write it: {error}") from error
    return body


@overload
def decode(message: HasBody) -> Any: ...
@overload
def decode(message: HasBody, model: type[T]) -> T: ...
def decode(message: HasBody, model: type[T] | None = None) -> Any:
    """The value, by the content type; JSON if none is given. `model`: a class of pydantic."""
    kind = content_type(message.properties)
    value = read(message.body, kind)
    if model is None:
        return value
    try:
        return model.model_validate(value)  # type: ignore[attr-defined]
    except ValueError as error:
        raise BodyNotRead(kind=kind, reason=_short(f"{model.__name__}: {error}")) from error


def read(body: bytes, kind: str) -> Any:
    """The value of a body of this content type. BodyNotRead."""
    try:
        if kind == JSON or kind.endswith("+json"):
            return json.loads(body)
        if kind == MSGPACK:
            return _package("msgpack").unpackb(body, timestamp=3, strict_map_key=False)
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise BodyNotRead(kind=kind, reason=_short(str(error) or type(error).__name__)) from error
    raise BodyNotRead(kind=escape(kind), reason=f"only {' and '.join(KINDS)} are known")


def content_type(properties: Mapping[str, Any]) -> str:
    """What a message says it is, in lower case and without parameters; JSON if it says nothing."""
    said = str(properties.get(CONTENT_TYPE) or JSON).partition(";")[0].strip().lower()
    return MSGPACK if said in _MSGPACK_TOO else said


def shown(body: bytes, properties: Mapping[str, Any]) -> str | None:
    """The body decoded, for people, as indented JSON; None: it says of itself nothing that this
    module reads, is not that, or lacks a package here."""
    if CONTENT_TYPE not in properties:
        return None
    try:
        value = read(body, content_type(properties))
        return json.dumps(_keyed(value), indent=2, ensure_ascii=False, default=_told)
    except (BodyNotRead, ExtraMissing, RecursionError, ValueError, TypeError):
        return None


def check(value: object, queues: Sequence[str], conf: Path) -> None:
    """Against the schema of each queue that has one. BodyRefused, SchemaWrong, ExtraMissing."""
    for queue in queues:
        validator = _validator(conf / SCHEMAS / f"{queue}.json")
        if validator is None:
            continue
        try:
            error = next(iter(validator.iter_errors(_plain(value))), None)
        except Exception as failed:  # of the schema: a reference to nowhere, a pattern that is none
            raise SchemaWrong(file=conf / SCHEMAS / f"{queue}.json", reason=_short(str(failed))
                              ) from failed
        if error is not None:
            raise BodyRefused(queue=queue, path=error.json_path, reason=_short(error.message))


_known: dict[Path, tuple[tuple[int, int, int], Any]] = {}


def _validator(path: Path) -> Any:
    """Of a schema's file; None: there is none."""
    try:
        found = path.stat()
        stamp = found.st_ino, found.st_mtime_ns, found.st_size
        if path in _known and _known[path][0] == stamp:
            return _known[path][1]
        schema = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise SchemaWrong(file=path, reason=_short(str(error))) from error
    package, registry = _package("jsonschema"), import_module("referencing").Registry()
    try:
        kind = package.validators.validator_for(schema, default=package.Draft202012Validator)
        kind.check_schema(schema)
    except (package.SchemaError, AttributeError, TypeError) as error:
        raise SchemaWrong(file=path, reason=_short(getattr(error, "message", str(error)))
                          ) from error
    made = kind(schema, registry=registry)  # an own one fetches nothing
    _known[path] = stamp, made
    return made


def _conf(connection: Connection) -> Path:
    from omq.base.paths import conf_dir  # Linux alone has it

    return conf_dir(connection._wire.paths.root, None)


def _plain(value: object) -> object:
    """A model as what JSON has."""
    dump = getattr(value, "model_dump", None)
    return value if dump is None else dump(mode="json")


def _kind(kind: str) -> str:
    if kind not in KINDS:
        raise arguments.wrong("kind", kind, f"it is {' or '.join(KINDS)}")
    return kind


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ExtraMissing(command="omq.codec", package=name, extra="omq-base[codec]") from error


def _keyed(value: Any) -> Any:
    """With keys that JSON can have."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else _told(key): _keyed(each)
                for key, each in value.items()}
    return [_keyed(each) for each in value] if isinstance(value, list | tuple) else value


def _told(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _short(text: str) -> str:
    return escape(text, _SAID_MAX)
