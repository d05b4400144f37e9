"""Nothing can be sent without an acknowledgement: no key asks for it, and what would is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
from confluent_kafka import Producer

from headgate.config import load
from headgate.config.destinations import DestinationSection, IggyDestinationSection, KafkaDestinationSection
from headgate.config.models import NatsSection
from headgate.destinations.context import DestinationContext
from headgate.destinations.iggy import IggyOptions
from headgate.destinations.kafka import KafkaOptions
from headgate.destinations.kafka.build import build
from headgate.destinations.kafka.client import make_client
from headgate.model import ConfigError

WORDS = ("ack", "async", "background", "fire", "forget", "unsafe", "confirm", "wait")


@pytest.mark.parametrize(
    "setting",
    [
        {"acks": "0"},
        {"acks": "1"},
        {"request.required.acks": "0"},
        {"enable.idempotence": "false"},
        {"delivery.report.only.error": "true"},
        {"message.timeout.ms": "0"},
        {"transactional.id": "x"},
        {"ACKS": "0"},
        {" acks": "0"},
    ],
)
def test_kafka_settings_that_undo_the_acknowledgement(setting: dict[str, str]) -> None:
    section = KafkaDestinationSection.model_validate({"type": "kafka", "servers": "h:9092", "settings": setting})
    with pytest.raises(ConfigError) as caught:
        _producer(section)
    assert caught.value.remedy


def _producer(section: KafkaDestinationSection) -> Any:
    options = build(section, DestinationContext("d", "p", Path(), NatsSection())).options
    return make_client(Producer, options, options.producer_settings(gapless=False))


def test_kafka_asks_for_all_replicas() -> None:
    settings = KafkaOptions(servers="h:9092").producer_settings(gapless=False)
    assert (settings["acks"], settings["enable.idempotence"]) == ("all", True)


@pytest.mark.parametrize("mode", ["background", "Direct", "", None, 0])
def test_iggy_in_the_background_is_refused_twice(mode: Any) -> None:
    with pytest.raises(ValueError, match="direct"):
        IggyDestinationSection.model_validate({"type": "iggy", "mode": mode})
    with pytest.raises(ConfigError, match="mode") as caught:
        IggyOptions(mode=mode)
    assert "background" in f"{caught.value} {caught.value.remedy}"


def test_who_asks_for_fewer_acknowledgements_is_told_why_not(tmp_path: Path) -> None:
    path = tmp_path / "headgate.toml"
    path.write_text(
        '[sources.s]\ntype = "random"\n[destinations.d]\ntype = "iggy"\nmode = "background"\n'
        '[pipelines.p]\nsource = "s"\ndestinations = ["d"]\ntopic = "t"\n'
    )
    with pytest.raises(ConfigError, match=r"destinations\.d\.mode"):
        load(path)


def test_no_kind_offers_weaker_acknowledgement() -> None:
    """Keys about acknowledgements are timeouts. A new one must come here and be thought about."""
    kinds = get_args(get_args(DestinationSection)[0])
    assert len(kinds) >= 9
    about = {
        f"{kind.model_fields['type'].annotation.__args__[0]}.{name}"
        for kind in kinds
        for name in kind.model_fields
        if any(word in name for word in WORDS)
    }
    assert about == {"nats.ack_timeout"}


@pytest.mark.parametrize("key", ["acks", "background", "async", "mode", "fire_and_forget"])
@pytest.mark.parametrize("kind", get_args(get_args(DestinationSection)[0]))
def test_keys_that_would_weaken_acknowledgement_are_unknown(kind: Any, key: str) -> None:
    if key in kind.model_fields:
        assert key == "mode"
        return
    with pytest.raises(ValueError, match="Extra inputs"):
        kind.model_validate({"type": kind.model_fields["type"].annotation.__args__[0], key: 0})
