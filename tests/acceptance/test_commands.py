"""The commands that need no server: what they print and how they exit."""

from __future__ import annotations

import json

from headgate import __version__
from tests.acceptance.conftest import Project


def test_version(project: Project) -> None:
    done = project.run("--version")
    assert (done.returncode, done.stdout) == (0, f"headgate {__version__}\n")


def test_help_names_every_command(project: Project) -> None:
    done = project.run("--help")
    assert done.returncode == 0
    for command in ("demo", "init", "validate", "check", "run", "bridge", "status", "up", "reset", "schema"):
        assert f" {command} " in done.stdout
    assert "Exit codes" in done.stdout


def test_unknown_command_is_wrong_usage(project: Project) -> None:
    assert project.run("fly").returncode == 2


def test_init_then_validate(project: Project) -> None:
    assert project.run("init").returncode == 0
    done = project.run("validate", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout) == {"valid": True, "problems": [], "pipelines": ["orders"]}


def test_init_does_not_overwrite(project: Project) -> None:
    path = project.write("# mine\n")
    done = project.run("init")
    assert done.returncode == 2
    assert "--force" in done.stderr
    assert path.read_text() == "# mine\n"


def test_validate_tells_key_line_and_remedy(project: Project) -> None:
    project.write("[control]\nprot = 1\n")
    done = project.run("validate")
    assert done.returncode == 3
    assert "line 2: control.prot: unknown key" in done.stderr
    assert "did you mean port?" in done.stderr
    assert done.stdout == ""
    told = json.loads(project.run("validate", "--json").stdout)
    assert told["problems"][0]["key"] == "control.prot"


def test_a_missing_file_is_a_configuration_error(project: Project) -> None:
    done = project.run("run")
    assert done.returncode == 3
    assert "headgate init" in done.stderr


def test_schema_is_json_schema(project: Project) -> None:
    schema = json.loads(project.run("schema").stdout)
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert "pipelines" in schema["properties"]
    assert schema["additionalProperties"] is False


def test_status_when_nothing_runs(project: Project) -> None:
    project.write("")
    done = project.run("status", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout) == {"running": False, "pid": None, "pipelines": []}


def test_reset_of_an_unknown_pipeline(project: Project) -> None:
    project.run("init")
    done = project.run("reset", "nope", "--yes")
    assert done.returncode == 2
    assert "orders" in done.stderr


def test_completion_can_be_shown(project: Project) -> None:
    done = project.run("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert done.returncode == 0
    assert "_HEADGATE_COMPLETE=complete_bash" in done.stdout
