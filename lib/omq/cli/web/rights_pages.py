"""Who is known here and what he may do: names, roles, tokens and the lines of authority.conf, never
a hash. For the role admin. What cannot be read is named, and the rest is shown.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

from aiohttp import web

from omq.base.config import load_settings
from omq.base.errors import ConfigError
from omq.cli.operate.definition_set import rights
from omq.cli.web.console import Console, console_of
from omq.services.network.password_file import load_users

_FILES: Final = (("web_users", "the console"), ("amqp_users", "AMQP"),
                 ("submission_users", "submission of mail"))


def found(console: Console) -> dict[str, Any]:
    """In a worker thread. ConfigError: authority.conf cannot be read."""
    location, policy = console.location, console.policy
    lines = rights(location)
    settings = load_settings(location.conf_dir)
    passwords, problems = defaultdict[str, list[str]](list), []
    for key, what in _FILES:
        path = getattr(settings, key)
        try:
            users = load_users(location.conf_dir, path, key, "omq-suite[web]") if path else None
        except ConfigError as error:
            problems.append(str(error))
            continue
        for name in users.hashes if users else ():
            passwords[name].append(what)
    named = {each["who"].partition(":")[2] for each in lines if each["who"].startswith("user:")}
    known = sorted((named | passwords.keys()) - {"*"})
    return {
        "rights": lines, "problems": problems,
        "users": [{"user": name, "role": _role(console, name), "passwords": passwords[name]}
                  for name in known],
        "tokens": [{"token": each.name, "user": each.user, "scopes": sorted(each.scopes),
                    "until": each.until.isoformat() if each.until else None}
                   for each in sorted(policy.tokens.values(), key=lambda each: each.name)]}


def _role(console: Console, name: str) -> str:
    caller = console.policy.caller(name, "")
    return caller.role if caller is not None else ""


async def page(request: web.Request) -> web.Response:
    """GET /rights."""
    console = console_of(request)
    return console.pages.answer(request, "rights.html", **await console.run(found, console))


async def rights_list(request: web.Request) -> web.Response:
    """GET /api/v1/rights."""
    console = console_of(request)
    return web.json_response(await console.run(found, console))
