"""What a package is made of, which instances there are, whose port is whose: without a machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from omq.base.errors import Exit
from omq.cli.setup import omq_package, omq_setup, setup_ports
from omq.services.supervise import unit_files
from omq.services.supervise.unit_files import installed, packaged, slice_of


def test_a_stage_has_the_files_of_a_package(tmp_path: Path) -> None:
    """Rendered, without the stamp of omq setup, and nothing else is written."""
    assert omq_setup.main(["--stage", str(tmp_path)]) == Exit.OK
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    found = {path.relative_to(tmp_path).as_posix() for path in files}
    assert {"usr/lib/systemd/system/omq.target", "usr/lib/systemd/system/omq-drain.service",
            "usr/lib/sysusers.d/omq.conf", "usr/lib/tmpfiles.d/omq.conf", "etc/omq/omq.conf",
            "usr/lib/sysctl.d/60-omq.conf", "etc/logrotate.d/omq"} <= found
    assert not [name for name in found if name.startswith("etc/systemd")]
    for name in found:
        text = (tmp_path / name).read_text(encoding="ascii")
        assert "Written by omq setup" not in text
        assert "@NAME@" not in text and "@SPOOL@" not in text
    assert "Slice=system-omq.slice" in (
        tmp_path / "usr/lib/systemd/system/omq-idel.service").read_text(encoding="ascii")


def test_places_of_a_package() -> None:
    assert packaged(Path("/etc/systemd/system/omq.target")) == Path(
        "/usr/lib/systemd/system/omq.target")
    assert packaged(Path("/etc/sysctl.d/60-omq.conf")) == Path("/usr/lib/sysctl.d/60-omq.conf")
    assert packaged(Path("/etc/logrotate.d/omq")) == Path("/etc/logrotate.d/omq")


@pytest.mark.parametrize(("instance", "name"), [
    (None, "system-omq.slice"), ("test", "system-omq-test.slice"),
    ("a--b", r"system-omq-a\x2d\x2db.slice")])
def test_a_dash_is_no_level_of_slices(instance: str | None, name: str) -> None:
    assert slice_of(instance) == name


@pytest.fixture
def units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine's folder of units with three instances, and units that only look like some."""
    for name in ("omq", "omq-test", "omq-a-b"):
        (tmp_path / f"{name}.target").touch()
        (tmp_path / f"{name}-queue-manager.service").touch()
    (tmp_path / "omq-other.target").touch()
    (tmp_path / "omqx.target").touch()
    monkeypatch.setattr(unit_files, "UNIT_DIR", tmp_path)
    monkeypatch.setattr(unit_files, "PACKAGE_UNIT_DIR", tmp_path / "none")
    return tmp_path


def test_installed_instances_the_default_one_first(units: Path) -> None:
    assert installed() == [None, "a-b", "test"]
    (units / "omq.target").unlink()
    assert installed() == ["a-b", "test"]


def _conf(monkeypatch: pytest.MonkeyPatch, folder: Path, texts: dict[str | None, str]) -> None:
    for instance, text in texts.items():
        (folder / f"conf-{instance}").mkdir()
        (folder / f"conf-{instance}/omq.conf").write_text(text, encoding="ascii")
    monkeypatch.setattr(setup_ports, "conf_of_instance",
                        lambda instance: folder / f"conf-{instance}")


def test_a_new_instance_gets_a_port_that_none_has(
    units: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _conf(monkeypatch, units, {"a-b": "[mail]\nsmtp_listen_port = 2526\n"})
    assert setup_ports.port_for("new") == 2527
    assert setup_ports.port_for(None) is None
    assert setup_ports.clashes(None) == [
        "smtp_listen_port 2525 is also that of omq-test.target: one of the two will not start; set"
        f" another in [mail] of {units}/conf-None/omq.conf"]


def test_a_broken_configuration_or_no_server_has_no_port(
    units: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _conf(monkeypatch, units, {None: "[nonsense]\n", "test": "[mail]\nsmtp_listen_port = 0\n"})
    assert setup_ports.address_of(None) is None
    assert setup_ports.address_of("test") is None
    assert setup_ports.clashes("a-b") == []


def test_the_package_command_is_roots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(Exception, match="as root"):
        omq_package.main(["pause"])
