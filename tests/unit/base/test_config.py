"""queues.conf and services.conf: the shipped ones, defaults, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from omq.base.config import QueueConf, load_queues
from omq.base.errors import ConfigError
from omq.base.services_conf import START_ORDER, STOP_ORDER, ServiceConf, ServiceKind, load_services
from omq.cli.launch import COMMANDS

NUMBERED = "number = 9\nkind = reader\nprogram = x\nqueue = A\n"


def _conf(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_shipped_queues() -> None:
    queues = load_queues()
    assert list(queues) == [
        *("ROUTER", "LOCAL", "UNIX", "ERRMGR", "ERROR", "DEFER", "REPLIES", "SYSTEM.TRIGGERS",
          "SYSTEM.SCHEDULES", "SYSTEM.CHANNELS", "SYSTEM.DEAD", "XPORT", "IDEL", "POISON"),
    ]
    assert [queue.name for queue in queues.values() if queue.special] == ["IDEL", "POISON"]
    for queue in queues.values():
        assert queue.description
        plain = QueueConf(queue.name, description=queue.description)
        if queue.name == "SYSTEM.TRIGGERS":
            plain = replace(plain, persistent_default=False, retry_delay_ms=0)
        elif queue.name in ("SYSTEM.CHANNELS", "SYSTEM.SCHEDULES"):
            plain = replace(plain, attempts_max=255, death_delay_s=0)
        assert queue == plain


def test_queue_keys_and_shared_defaults(tmp_path: Path) -> None:
    conf = _conf(
        tmp_path,
        "queues.conf",
        "[*]\nmax_depth = 10\nput = inhibited\n"
        "[ORDERS]\nput = allowed\nget = inhibited\npersistent = no\npriority = urgent\n"
        "max_length = 1 MiB\nattempts_max = 5\ndeath_delay_s = 0\nlease_s = 60\n"
        "description = two words\n[OTHER]\n",
    )
    queues = load_queues(conf)
    assert list(queues) == ["ORDERS", "OTHER", "IDEL", "POISON"]
    assert queues["ORDERS"] == QueueConf(
        "ORDERS",
        max_depth=10,
        max_length=1 << 20,
        put_allowed=True,
        get_allowed=False,
        persistent_default=False,
        priority_default=7,
        attempts_max=5,
        death_delay_s=0,
        lease_s=60,
        description="two words",
    )
    assert queues["OTHER"] == QueueConf("OTHER", max_depth=10, put_allowed=False)


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ("[orders]\n", 1, "[orders]"),
        ("[A]\ndepth = 1\n", 2, "depth"),
        ("[*]\ndepth = 1\n", 2, "depth"),
        ("[A]\nput = yes\n", 2, "put"),
        ("[A]\npriority = 10\n", 2, "priority"),
        ("[A]\nattempts_max = 0\n", 2, "attempts_max"),
        ("[A]\ndescription = " + "x" * 101 + "\n", 2, "description"),
        ("[A]\n[B]\n[A]\n", 3, "[A]"),
        ("".join(f"[Q{number}]\n" for number in range(998)), 1, "[Q0]"),
    ],
)
def test_mistakes_in_queues(tmp_path: Path, text: str, line: int, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_queues(_conf(tmp_path, "queues.conf", text))
    assert (caught.value.fields["line"], caught.value.fields["key"]) == (line, key)


def test_as_many_queues_as_have_a_number(tmp_path: Path) -> None:
    text = "".join(f"[Q{number}]\n" for number in range(997))
    assert len(load_queues(_conf(tmp_path, "queues.conf", text))) == 999
    text += "[IDEL]\n[POISON]\n"  # they are counted once
    assert len(load_queues(_conf(tmp_path, "queues.conf", text))) == 999


def test_shipped_services() -> None:
    services = load_services()
    titles = {service.program: service.title for service in services.values()}
    assert titles == {
        "queue.manager": "Queue Manager",
        "pool.writer": "Pool Writer",
        "idel.server": "Item Delete Daemon",
        "service.router": "Service Router",
        "local.delivery": "Local Delivery",
        "unix.out": "Internet Mail Gateway",
        "error.manager": "Error Manager",
        "smtp.server": "SMTP Server",
        "amqp.server": "AMQP Server",
        "trigger.monitor": "Trigger Monitor",
        "schedule.server": "Schedule Server",
        "channel.sender": "Channel Sender",
        "xport.out": "Sendmail Interface",
        "mail.drop": "Mail Drop",
    }
    assert set(titles) <= set(COMMANDS)
    queues = load_queues()
    assert all(service.queue in queues for service in services.values() if service.queue)
    assert (services["router"].number, services["qmgr"].number) == (2, 100)  # the original's


def test_service_keys(tmp_path: Path) -> None:
    conf = _conf(
        tmp_path,
        "services.conf",
        "[mine]\ntitle = My Service\nnumber = 12\nkind = reader\nprogram = my.program\n"
        "queue = ORDERS\nauxiliaries = 20\nbatch = 5\nnonstop = yes\nenabled = no\n"
        "subservices = one two\n",
    )
    assert load_services(conf) == {
        "mine": ServiceConf(
            "mine",
            "My Service",
            12,
            ServiceKind.READER,
            "my.program",
            queue="ORDERS",
            auxiliaries=20,
            batch=5,
            nonstop=True,
            enabled=False,
            subservices=("one", "two"),
        )
    }


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ("[A]\n" + NUMBERED, 1, "[A]"),
        ("[a]\nnumber = 1\n", 1, "[a]"),
        ("[a]\n" + NUMBERED + "auxiliaries = 21\n", 6, "auxiliaries"),
        ("[a]\n" + NUMBERED + "[b]\n" + NUMBERED, 7, "number"),
        ("[a]\nnumber = 1\nkind = reader\nprogram = x\n", 1, "[a]"),
        ("[a]\nnumber = 1\nkind = manager\nprogram = x\nqueue = A\n", 5, "queue"),
        ("[a]\nnumber = 1\nkind = daemon\nprogram = x\n", 3, "kind"),
        ("[a]\nnumber = 1\nkind = manager\nprogram = ../x\n", 1, "[a]"),
        ("[a]\n" + NUMBERED + "color = red\n", 6, "color"),
    ],
)
def test_mistakes_in_services(tmp_path: Path, text: str, line: int, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_services(_conf(tmp_path, "services.conf", text))
    assert (caught.value.fields["line"], caught.value.fields["key"]) == (line, key)


def test_orders_name_every_kind_once() -> None:
    assert sorted(kind.value for kind in START_ORDER) == sorted(kind.value for kind in STOP_ORDER)
    assert set(START_ORDER) == set(ServiceKind)
