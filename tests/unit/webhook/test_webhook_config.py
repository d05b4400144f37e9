"""Webhooks in the configuration: what is required, and what stays secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.config import InvalidConfigError, parse
from headgate.destinations.webhook import WebhookDestination
from headgate.pipeline.assemble import assemble
from headgate.sources.webhook.source import WebhookSource

BOTH = """
[sources.hooks]
type = "webhook"
host = "0.0.0.0"
max_body = "64KiB"
signature = { scheme = "standard", secrets = ["whsec_aGlkZGVuaGlkZGVu", "hidden-too"], tolerance = "1m" }

[destinations.out]
type = "webhook"
url = "https://hidden-user:hidden-word@host.example/in/{topic}"
headers = { Authorization = "Bearer hidden-token" }
signature = { scheme = "github", secrets = ["hidden-three"] }
retry_for = "2m"

[pipelines.p]
source = "hooks"
destinations = ["out"]
topic = "t"
"""


def test_sections_become_parts(tmp_path: Path) -> None:
    config = parse(BOTH, where=tmp_path / "headgate.toml", environ={})
    assert "hidden" not in repr(config)
    assert "hidden" not in config.model_dump_json()
    (spec,) = assemble(config, nats_url=None, postgres_url=None)
    (out,) = spec.destinations
    assert isinstance(out, WebhookDestination)
    assert isinstance(spec.source, WebhookSource)
    assert out.options.retry_for_s == 120
    assert out.options.address == "https://host.example"
    assert "hidden" not in repr(out)
    assert str(spec.source.mode()) == "polling (destructive)"
    assert "hidden" not in str(spec.source.options())
    assert spec.source.origin() == spec.source.origin()
    assert spec.source.describe() == {"server": "stopped"}


@pytest.mark.parametrize(
    ("old", "new", "key", "message"),
    [
        ('signature = { scheme = "standard"', "#", "sources.hooks", "not loopback"),
        ('"hidden-too"', '""', "sources.hooks.signature.secrets[1]", "at least 8"),
        ('max_body = "64KiB"', 'path = "a b"', "sources.hooks.path", "pattern"),
        ('max_body = "64KiB"', 'keys = { shop = "short" }', "sources.hooks.keys.shop", "at least 8"),
        ('retry_for = "2m"', "batch_rows = 0", "destinations.out.batch_rows", "greater"),
        ('"github"', '"gitlab"', "destinations.out.signature.scheme", "input should be"),
    ],
)
def test_mistakes_are_named(old: str, new: str, key: str, message: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        parse(BOTH.replace(old, new), environ={})
    (problem,) = caught.value.problems
    assert problem.key == key
    assert message in problem.message
    assert "hidden" not in str(caught.value)
