"""The configuration: what it accepts, and how it explains what it does not."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from headgate.config import InvalidConfigError, Problem, load, parse
from headgate.model import ConfigError

GOOD = """
[sources.orders]
type = "random"

[destinations.events]
type = "nats"
stream = "S"
subjects = ["s.>"]

[pipelines.p]
source = "orders"
destinations = ["events"]
topic = "s.{kind}"
"""


def problems(text: str, **environ: str) -> dict[str, Problem]:
    with pytest.raises(InvalidConfigError) as caught:
        parse(text, environ=environ)
    return {problem.key: problem for problem in caught.value.problems}


def test_the_template_of_init_is_valid() -> None:
    text = resources.files("headgate.config.recipes").joinpath("default.toml").read_text()
    config = parse(text, environ={})
    assert list(config.pipelines) == ["orders"]


def test_defaults_need_no_file_content() -> None:
    config = parse("", environ={})
    assert config.postgres.embedded
    assert config.nats.embedded
    assert config.control.host == "127.0.0.1"


def test_data_dir_is_relative_to_the_file(tmp_path: Path) -> None:
    file = tmp_path / "sub" / "headgate.toml"
    file.parent.mkdir()
    file.write_text('[project]\ndata_dir = "data"\n')
    assert load(file, {}).project.data_dir == tmp_path / "sub" / "data"


def test_config_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        parse("", environ={}).control.port = 1  # type: ignore[misc]


def test_missing_file_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no configuration file") as caught:
        load(tmp_path / "none.toml", {})
    assert "headgate init" in caught.value.remedy
    assert caught.value.exit_code == 3


def test_a_directory_in_place_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        load(tmp_path, {})


def test_toml_syntax_names_the_line() -> None:
    found = problems('[control]\nport = 1\nhost = "\n')[""]
    assert found.line == 3
    assert "not valid TOML" in found.message


@pytest.mark.parametrize(
    ("text", "key", "line", "remedy"),
    [
        ("[control]\nprot = 1\n", "control.prot", 2, "did you mean port?"),
        ("[contrl]\nport = 1\n", "contrl", 1, "did you mean control?"),
        ('[sources.a]\ntype = "random"\nrows_per_secnd = 1\n', "sources.a.rows_per_secnd", 3, "rows_per_second"),
        ('[destinations.d]\ntype = "natz"\n', "destinations.d", 1, "did you mean nats?"),
        ('[destinations.d]\nstream = "x"\n', "destinations.d", 1, "add: type"),
        ('[destinations.d]\ntype = "nats"\nsubjects = ["a"]\n', "destinations.d.stream", 1, "add: stream"),
        ('[control]\n\nport = "many"\n', "control.port", 3, "Port to listen on"),
        ('[logging]\nmetrics_interval = "5 parsecs"\n', "logging.metrics_interval", 2, "METRICS"),
        ('[[pipelines.p.transforms]]\ntype = "filter"\nwher = "x"\n', "pipelines.p.transforms[0].wher", 3, "where"),
    ],
)
def test_a_problem_has_key_line_and_remedy(text: str, key: str, line: int, remedy: str) -> None:
    found = problems(text)[key]
    assert found.line == line
    assert remedy in found.remedy


def test_all_problems_are_told_at_once() -> None:
    assert {"control.port", "control.x", "logging.level"} <= set(
        problems('[control]\nport = -1\nx = 1\n[logging]\nlevel = "loud"\n')
    )


def test_dangling_names() -> None:
    found = problems(GOOD.replace('source = "orders"', 'source = "ordres"'))["pipelines.p.source"]
    assert found.remedy == "did you mean orders?"


def test_public_address_needs_a_token() -> None:
    text = '[control]\nhost = "0.0.0.0"\n'
    assert "token" in problems(text)["control"].message
    assert parse(text + 'token = "t"\n', environ={}).control.token is not None


def test_interpolation() -> None:
    text = GOOD.replace('"S"', '"${STREAM}"').replace('"s.{kind}"', '"${PREFIX:-s}.$${kind}"')
    config = parse(text, environ={"STREAM": "FROM_ENV"})
    destination = config.destinations["events"]
    assert destination.type == "nats"
    assert destination.stream == "FROM_ENV"
    assert config.pipelines["p"].topic == "s.${kind}"


def test_interpolation_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "name").write_text("from-file\n")
    file = tmp_path / "headgate.toml"
    file.write_text('[project]\nname = "${file:name}"\n')
    assert load(file, {}).project.name == "from-file"


def test_unset_variable_is_a_problem_with_its_line() -> None:
    found = problems('[project]\nname = "${NOPE}"\n')["project.name"]
    assert found.line == 2
    assert "export NOPE" in found.remedy


def test_environment_wins_over_the_file() -> None:
    config = parse("[control]\nport = 1\n", environ={"HEADGATE__CONTROL__PORT": "9000"})
    assert config.control.port == 9000


def test_secret_files_and_masks(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("hunter2\n")
    config = parse(f'[nats]\nurl = "nats://h:4222"\nuser = "u"\npassword_file = "{tmp_path}/pw"\n', environ={})
    assert config.nats.password is not None
    assert config.nats.password.get_secret_value() == "hunter2"
    assert "hunter2" not in repr(config)
    assert "hunter2" not in config.model_dump_json()


def test_secret_given_twice(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("x")
    assert "not both" in problems(f'[nats]\npassword = "a"\npassword_file = "{tmp_path}/pw"\n')["nats"].message


def test_missing_secret_file() -> None:
    assert "cannot read the secret file" in problems('[nats]\npassword_file = "/nonexistent/pw"\n')["nats"].message


@pytest.mark.parametrize(("text", "seconds"), [('"500ms"', 0.5), ("3", 3), ('"2m"', 120), ('"1.5h"', 5400)])
def test_durations(text: str, seconds: float) -> None:
    assert parse(f"[logging]\nmetrics_interval = {text}\n", environ={}).logging.metrics_interval == seconds


def test_sizes() -> None:
    config = parse(GOOD.replace('stream = "S"', 'stream = "S"\nmax_bytes = "64MiB"'), environ={})
    destination = config.destinations["events"]
    assert destination.type == "nats"
    assert destination.max_bytes == 64 * 2**20


def test_raw_needs_its_column() -> None:
    assert "payload_column" in problems(GOOD + 'format = "raw"\n')["pipelines.p"].message
