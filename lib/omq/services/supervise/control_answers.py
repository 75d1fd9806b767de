"""What the embedded supervisor answers on its control socket
(omq.services.supervise.control_socket)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Protocol

from omq.base.errors import BadRequest, ConfigError, OmqError, ServiceUnknown
from omq.services.daemon.run_state import SupervisorState
from omq.services.supervise.child import Child
from omq.services.supervise.control_socket import Reply, Request


class Commanded(Protocol):
    """The supervisor, as far as requests reach."""

    def child(self, name: object) -> Child | None: ...
    def state(self) -> SupervisorState: ...
    def request_stop(self) -> None: ...
    def reload(self) -> ConfigError | None: ...


class ControlAnswers:
    """One method a command."""

    def __init__(self, supervisor: Commanded) -> None:
        self._supervisor = supervisor

    def answer(self, request: Request) -> Reply:
        """The reply to one request; a refusal is a reply too."""
        commands: dict[str, Callable[[Request], Reply]] = {
            "status": self._on_status, "stop": self._on_stop, "reload": self._on_reload,
            "on": self._on_switch, "off": self._on_switch,
        }  # fmt: skip
        command = commands.get(str(request.get("command")))
        try:
            if command is None:
                raise BadRequest(reason=f"known commands: {', '.join(commands)}")
            return {"ok": True, **command(request)}
        except OmqError as error:
            fields = {name: str(value) for name, value in error.fields.items()}
            return {"ok": False, "status": error.status, "fields": fields}

    def _on_status(self, _request: Request) -> Reply:
        return asdict(self._supervisor.state())

    def _on_stop(self, request: Request) -> Reply:
        self._supervisor.request_stop()
        return self._on_status(request)

    def _on_reload(self, _request: Request) -> Reply:
        if (problem := self._supervisor.reload()) is not None:
            raise problem
        return {}

    def _on_switch(self, request: Request) -> Reply:
        name = request.get("service")
        child = self._supervisor.child(name)
        if child is None:
            known = ", ".join(each.name for each in self._supervisor.state().children)
            raise ServiceUnknown(service=name, known=known)
        if request["command"] == "on":
            child.want()
        elif child.core:
            reason = f"{child.conf.name} is NON-STOP; omshut stops the whole instance"
            raise BadRequest(reason=reason)
        else:
            child.stop_for_good(time.monotonic())
        return {"service": asdict(child.record())}
