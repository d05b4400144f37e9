"""What `headgate check` says of a gateway before it is started."""

from __future__ import annotations

from pathlib import Path

from headgate.config import parse
from headgate.control.checks.gateway import check_gateway
from headgate.control.checks.verdict import Check, Outcome
from tests.gateway.certificates import Authority, write_certificate


def checks(text: str) -> dict[str, Check]:
    section = parse(f"[gateway]\nenabled = true\nport = 0\n{text}\n").gateway
    return {check.subject: check for check in check_gateway(section)}


def test_an_open_door_is_a_warning() -> None:
    assert "gateway access" not in checks("")
    assert "gateway access" not in checks('host = "LOCALHOST"\nallow_anonymous = false')
    found = checks('host = "LOCALHOST"\nallow_anonymous = true')["gateway access"]
    assert found.outcome is Outcome.WARN


def test_certificates_are_tried(tmp_path: Path) -> None:
    cert, key = write_certificate(tmp_path)
    files = f'tls_cert = "{cert}"\ntls_key = "{key}"\n'
    assert checks(files)["gateway certificate"].outcome is Outcome.OK
    authority = Authority(tmp_path)
    more = f'tls_client_ca = "{authority.file}"\ntls_client_auth = "require"'
    assert checks(files + more)["gateway certificate"].outcome is Outcome.OK
    authority.file.write_text("nothing")
    assert checks(files + more)["gateway certificate"].outcome is Outcome.FAIL
    key.write_text("nothing")
    assert checks(files)["gateway certificate"].outcome is Outcome.FAIL
