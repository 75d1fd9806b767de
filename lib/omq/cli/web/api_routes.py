"""Every route of the REST interface, with what its document says of it; the document itself.

OpenAPI 3.1, made of this list: what is not in it is not a route, and a test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from aiohttp import web

import omq
from omq.base.limits import BATCH_MAX
from omq.cli.operate.definition_set import LISTS
from omq.cli.web import (
    api,
    api_acting,
    api_queues,
    connection_pages,
    definitions,
    rights_pages,
    schedule_pages,
)
from omq.cli.web.action_pages import DOABLE
from omq.cli.web.api_messages import ENDS, KEY, QUERY
from omq.cli.web.caller import SCOPES
from omq.cli.web.console import console_of
from omq.cli.web.deliveries import COUNT_MAX, WAIT_MAX_S
from omq.cli.web.routes import Parameter, Route

BASE: Final = "/api/v1"
_QUEUE: Final = f"{BASE}/queues/{{queue:[A-Z0-9_.]{{1,16}}}}"
_ID: Final = f"{BASE}/messages/{{id:[!-.0-~]{{1,64}}}}"
_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "number", "minimum": 0}
_TRUTH: Final = {"type": "boolean"}
_TEXTS: Final = {"type": "object", "additionalProperties": _TEXT}
_OBJECT: Final = {"type": "object"}
_WHOLE: Final = {"type": "integer"}
_WHERE: Final = Parameter("where", "a selector, as --where of omqdump has it")


def _takes(*needed: str, **properties: Any) -> dict[str, Any]:
    """An object of a request: no keys but these."""
    found = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**found, "required": list(needed)} if needed else found


_PROPERTIES: Final = {"type": "object", "additionalProperties": {
    "type": ["string", "number", "boolean"]}}
_CONTENT: Final = {"body": {"type": ["string", "null"]}, "body_base64": _TEXT}
"""A body as text, or where it is none."""
_MESSAGE: Final = _takes(
    body=_TEXT, body_base64=_TEXT, priority={"type": ["integer", "string"]},
    properties=_PROPERTIES, persistent=_TRUTH, correlation_id=_TEXT, message_id=_TEXT,
    expiry_s=_NUMBER, reply_to=_TEXT, delay_s=_NUMBER, group_id=_TEXT, unique_key=_TEXT)
_PUT: Final = {"oneOf": [_MESSAGE, _takes("messages", messages={
    "type": "array", "items": _MESSAGE, "minItems": 1, "maxItems": BATCH_MAX})]}
_QUESTION: Final = _takes(
    body=_TEXT, body_base64=_TEXT, priority={"type": ["integer", "string"]},
    properties=_PROPERTIES, persistent=_TRUTH, correlation_id=_TEXT, message_id=_TEXT,
    group_id=_TEXT, unique_key=_TEXT, timeout_s={**_NUMBER, "maximum": WAIT_MAX_S})
_SETTLEMENT: Final = {
    "end": {"enum": list(ENDS)}, "seconds": _NUMBER, "reason": _TEXT, "to": _TEXT, "body": _TEXT,
    "body_base64": _TEXT, "properties": _PROPERTIES, "progress": _TEXT}
_DELIVERY: Final = {
    "type": "object", "required": ["delivery", "queue", "message_id", "size"],
    "properties": {
        "delivery": _TEXT, "queue": _TEXT, "qpool_id": _WHOLE, "message_id": _TEXT,
        "priority": _WHOLE, "attempts": _WHOLE, "redelivered": _TRUTH, "properties": _TEXTS,
        "correlation_id": _TEXT, "correlation": _TEXT, "reply_to": _TEXT, "size": _WHOLE,
        "body_url": _TEXT, **_CONTENT}}
_FAILED: Final = {"type": "array", "items": {"type": "object", "properties": {
    "delivery": _TEXT, "status": _WHOLE, "detail": _TEXT, "omq_error": _TEXT,
    "omq_status": _WHOLE}}}
_GIVEN: Final = {"type": "object", "required": ["deliveries"], "properties": {
    "deliveries": {"type": "array", "items": _DELIVERY}, "failed": _FAILED}}
_IDS: Final = {"type": "object", "properties": {
    "message_id": _TEXT, "message_ids": {"type": "array", "items": _TEXT}}}
_REPLY: Final = {"type": "object", "properties": {
    "message_id": _TEXT, "correlation": _TEXT, "priority": _WHOLE, "properties": _TEXTS,
    "delivery": _TEXT, "body_url": _TEXT, "size": _WHOLE, **_CONTENT}}
_ACT: Final = _takes(
    "do", do={"enum": list(DOABLE)}, to=_TEXT, where=_TEXT, all=_TRUTH, reason=_TEXT,
    dry_run=_TRUTH, force=_TRUTH)
_GET: Final = _takes(count={"type": "integer", "minimum": 1, "maximum": COUNT_MAX},
                     wait_s={**_NUMBER, "maximum": WAIT_MAX_S},
                     done={"type": "array", "items": _TEXT, "maxItems": COUNT_MAX})
_RAW: Final = tuple(Parameter(name, f"of a body that is sent as it is: {name} of the message",
                              _NUMBER if kind is float else _TEXT)
                    for name, kind in QUERY.items())
_ONCE: Final = Parameter(KEY, "the message's unique_key; of a list each gets /0, /1 ... at its end",
                         place="header")


async def document(request: web.Request) -> web.Response:
    """GET /api/v1/openapi.json."""
    return web.json_response(openapi(console_of(request).pages.root))


API: Final = (
    Route("GET", f"{BASE}/openapi.json", document, "this document", open=True, answer=_OBJECT),
    Route("GET", f"{BASE}/overview", api.overview, "the instance in figures", "look",
          answer=_OBJECT),
    Route("GET", f"{BASE}/queues", api.queues, "all queues", "look", answer=_OBJECT),
    Route("GET", _QUEUE, api.queue, "one queue, and why it is as it is", "look", answer=_OBJECT),
    Route("PUT", _QUEUE, api_acting.define, "define a queue", "define", status=204,
          body=_takes("reason", kind=_TEXT, keys=_TEXTS, reason=_TEXT)),
    Route("PATCH", _QUEUE, api_acting.alter, "other keys for a queue", "define", status=204,
          body=_takes("keys", "reason", keys=_TEXTS, reason=_TEXT)),
    Route("DELETE", _QUEUE, api_acting.remove, "remove an empty queue", "define", status=204,
          query=(Parameter("reason", "why; kept in the journal"),)),
    Route("POST", f"{_QUEUE}/inhibit", api_acting.inhibit, "hold, release, close, open a queue",
          "operate", status=204, body=_takes("reason", get=_TRUTH, put=_TRUTH, reason=_TEXT)),
    Route("GET", f"{_QUEUE}/messages", api.messages, "its messages, in the order of hand-out",
          "browse", query=(_WHERE, Parameter("after", "`after` of the page before"), Parameter(
              "limit", "messages at most", {"type": "integer", "minimum": 1, "maximum": 1000})),
          answer=_OBJECT),
    Route("POST", f"{_QUEUE}/messages", api_queues.put, "put a message, or all of a list or none",
          "put", body=_PUT, status=201, raw_body=True, query=(*_RAW, _ONCE), answer=_IDS),
    Route("POST", f"{_QUEUE}/request", api_queues.request_reply,
          "put a message that wants an answer, and wait for that", "put", body=_QUESTION,
          answer=_REPLY),
    Route("POST", f"{_QUEUE}/get", api_queues.get,
          "take messages; settle each by its delivery; `done`: deliveries that are done", "get",
          body=_GET, answer=_GIVEN),
    Route("POST", f"{BASE}/deliveries", api_queues.settle_many, "end the work on several, each by "
          "itself", "get", body=_takes("settle", settle={
              "type": "array", "maxItems": COUNT_MAX,
              "items": _takes("delivery", delivery=_TEXT, **_SETTLEMENT)}),
          answer={"type": "object", "properties": {"settled": _WHOLE, "failed": _FAILED}}),
    Route("POST", f"{BASE}/deliveries/{{delivery}}", api_queues.settle,
          "end the work on one, or say that it goes on (touch)", "get", status=204,
          body=_takes(**_SETTLEMENT)),
    Route("GET", f"{BASE}/deliveries/{{delivery}}/body", api_queues.delivery_body,
          "the bytes of one", "get"),
    Route("POST", f"{_QUEUE}/act", api_acting.act, "do something to the messages of a selector",
          "operate", body=_ACT, answer=_OBJECT),
    Route("GET", _ID, api.message, "one message, and why it does not move", "browse",
          answer=_OBJECT),
    Route("GET", f"{_ID}/progress", api_queues.progress, "what its readers say of their work",
          "browse", answer=_OBJECT),
    Route("GET", f"{_ID}/body", api.body, "its bytes", "browse"),
    Route("GET", f"{_ID}/biography", api.biography, "what journal and archive say of it", "browse",
          answer=_OBJECT),
    Route("GET", f"{BASE}/definitions", definitions.export,
          "queues, exchanges, bindings, schedules, rights, as one file", "define", answer=_OBJECT),
    Route("POST", f"{BASE}/definitions", definitions.take_in,
          "have all that such a file names, or (dry_run) say what would change", "define",
          answer=_OBJECT, body=_takes(
              "version", version=_WHOLE, reason=_TEXT, dry_run=_TRUTH,
              **{each: {"type": "array", "items": _OBJECT} for each in LISTS})),
    Route("GET", f"{BASE}/schedules", schedule_pages.listed, "schedules, with next and last time",
          "browse", answer=_OBJECT),
    Route("GET", f"{BASE}/services", api.services, "services and their states", "look",
          answer=_OBJECT),
    Route("POST", f"{BASE}/services/{{service}}", api_acting.turn, "turn a service on or off",
          "define", status=204, body=_takes("on", "reason", on=_TRUTH, reason=_TEXT)),
    Route("GET", f"{BASE}/connections", connection_pages.connection_list,
          "connections of amqp.server and their links, with rates", "look", answer=_OBJECT),
    Route("POST", f"{BASE}/connections/{{connection:[0-9]{{1,12}}}}/close",
          connection_pages.close, "end a connection of amqp.server, or one link of it", "operate",
          status=204, body=_takes("reason", reason=_TEXT, link=_TEXT)),
    Route("GET", f"{BASE}/rights", rights_pages.rights_list, "users, roles, tokens, authority.conf",
          "define", answer=_OBJECT),
    Route("GET", f"{BASE}/metrics", api.metrics, "figures for Prometheus, as omq-metrics has them",
          "look"),
    Route("GET", f"{BASE}/audit", api.audit, "commands of operators, the newest first", "operate",
          answer=_OBJECT),
)


def openapi(root: str = "") -> dict[str, Any]:
    """The document. `root`: web_path."""
    paths: dict[str, dict[str, Any]] = {}
    for route in API:
        paths.setdefault(_plain(route.path), {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        **({"servers": [{"url": root}]} if root else {}),
        "info": {"title": "omq", "version": omq.__version__, "description":
                 "One instance of omq. Records are those of the tools' --json lines: keys are only "
                 "added. Errors are RFC 9457."},
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {
                "type": "http", "scheme": "bearer", "description":
                f"omq-web --token makes one; its scopes are of {', '.join(SCOPES)}"}},
            "schemas": {"Problem": {"type": "object", "properties": {
                "type": _TEXT, "title": _TEXT, "status": {"type": "integer"}, "detail": _TEXT,
                "instance": _TEXT, "omq_error": _TEXT, "omq_status": {"type": "integer"}}}}}}


def _plain(path: str) -> str:
    """Without the patterns of aiohttp: `{queue:[A-Z]+}` is `{queue}`."""
    return re.sub(r"\{(\w+):(?:[^{}]|\{[^{}]*\})*\}", r"{\1}", path)


def _operation(route: Route) -> dict[str, Any]:
    good: dict[str, Any] = {"description": "done" if route.status == 204 else route.title}
    if route.answer is not None:
        good["content"] = {"application/json": {"schema": route.answer}}
    found: dict[str, Any] = {
        "operationId": route.handler.__name__, "summary": route.title,
        "parameters": list(_parameters(route)),
        "responses": {str(route.status): good, "default": {
            "description": "why not", "content": {"application/problem+json": {
                "schema": {"$ref": "#/components/schemas/Problem"}}}}},
        "security": [] if route.open else [{"token": [route.scope]}]}
    if route.status == 200 and route.answer is None:  # bytes
        good["content"] = {"application/octet-stream": {"schema": {}}}
    if route.body is not None:
        content = {"application/json": {"schema": route.body}}
        if route.raw_body:
            content["application/octet-stream"] = {"schema": {}}
        found["requestBody"] = {"content": content}
    return found


def _parameters(route: Route) -> Iterator[dict[str, Any]]:
    for name in re.findall(r"\{(\w+)", _plain(route.path)):
        yield {"name": name, "in": "path", "required": True, "schema": _TEXT}
    for each in route.query:
        yield {"name": each.name, "in": each.place, "description": each.text,
               "schema": dict(each.schema)}
