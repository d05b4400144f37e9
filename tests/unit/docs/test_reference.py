"""The reference pages are those that the code gives, and leave nothing without a word."""

from __future__ import annotations

import re

import pytest

from headgate.config.models import Config
from tools.reference import DIRECTORY, PAGES
from tools.reference_cli import commands
from tools.reference_configuration import tables_of


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_up_to_date(name: str) -> None:
    assert (DIRECTORY / name).read_text(encoding="utf-8") == PAGES[name](), "write it anew: make reference"


def test_there_are_no_other_pages() -> None:
    assert {path.name for path in DIRECTORY.iterdir()} == set(PAGES)


def test_every_key_has_a_description() -> None:
    silent = [
        f"{name} {key}"
        for name, model in tables_of(Config, "")
        for key, info in model.model_fields.items()
        if key != "type" and not info.description
    ]
    assert silent == []


def test_every_command_and_option_has_its_help() -> None:
    found = list(commands())
    assert len(found) > 50
    assert [name for name, command in found if not command.help] == []
    silent = [f"{name} {each.name}" for name, command in found for each in command.params if not each.help]
    assert silent == []


@pytest.mark.parametrize("name", ["cli.md", "metrics.md"])
def test_every_row_of_a_table_says_what_it_means(name: str) -> None:
    text = (DIRECTORY / name).read_text(encoding="utf-8")
    assert re.findall(r"^\| .*\|  \|$", text, re.MULTILINE) == []


def test_every_port_is_in_the_list_of_ports() -> None:
    listed = (DIRECTORY.parent / "install.md").read_text(encoding="utf-8")
    ports = [model.model_fields["port"].default for _, model in tables_of(Config, "") if "port" in model.model_fields]
    assert len(ports) > 4
    assert [port for port in ports if f"| {port} |" not in listed] == []


def test_what_to_alert_on_is_exported() -> None:
    named = re.findall(r"`(headgate_\w+)`", (DIRECTORY.parent / "deployment.md").read_text(encoding="utf-8"))
    exported = (DIRECTORY / "metrics.md").read_text(encoding="utf-8")
    assert len(named) > 4
    assert [name for name in named if f"| `{name}` |" not in exported] == []
