"""A route of omq-web, and what it needs; the one list of them all is in omq.cli.web.app."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from omq.cli.web.gate import Handler

Schema = Mapping[str, Any]
"""A JSON schema, as OpenAPI 3.1 has it."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """Something in the query, or in a header, of an API route."""

    name: str
    text: str
    schema: Schema = field(default_factory=lambda: {"type": "string"})
    place: str = "query"


@dataclass(frozen=True, slots=True)
class Route:
    """`scope`: of caller.SCOPES, empty: any role (a page), or the handler asks for itself. `open`:
    nobody needs to be logged in. What stands below `title` is for the document of the API."""

    method: str
    path: str
    handler: Handler
    title: str
    scope: str = ""
    open: bool = False
    query: tuple[Parameter, ...] = ()
    body: Schema | None = None
    answer: Schema | None = None
    status: int = 200
    raw_body: bool = False  # any bytes are taken, besides JSON
