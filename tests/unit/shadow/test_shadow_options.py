"""How a cluster is reached: what is refused, and what is never shown."""

from __future__ import annotations

import pickle
from typing import Any, get_args

import pytest

from headgate.destinations.shadow.section import ShadowDestinationSection
from headgate.model import ConfigError, DataError
from headgate.shadow.cluster import Cluster
from headgate.shadow.topics import configs_there
from headgate.sources.kafka.whole import Place, place_of
from headgate.wire.kafka.login import MECHANISMS

SECRET = "pa55-w0rd"


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        ({"servers": ""}, "servers"),
        ({"servers": "k"}, "servers"),
        ({"servers": "k:0"}, "servers"),
        ({"servers": "k:65536,k:1"}, "servers"),
        ({"security_protocol": "sasl_ssl"}, "sasl_mechanism"),
        ({"security_protocol": "sasl_ssl", "sasl_mechanism": "GSSAPI", "user": "u"}, "sasl_mechanism"),
        ({"security_protocol": "sasl_plaintext", "sasl_mechanism": "PLAIN"}, "user"),
        ({"tls_cert": "x"}, "tls_cert"),
    ],
)
def test_what_cannot_be(wrong: dict[str, Any], where: str) -> None:
    with pytest.raises(ConfigError) as told:
        Cluster(**{"servers": "k:1"} | wrong)
    assert told.value.where == where
    assert told.value.remedy


def test_ways_to_log_in_are_those_of_the_client() -> None:
    annotation = ShadowDestinationSection.model_fields["sasl_mechanism"].annotation
    assert get_args(get_args(annotation)[0]) == MECHANISMS


def test_addresses_of_both_families() -> None:
    assert Cluster(servers="a:1, [::1]:2").addresses == [("a", 1), ("::1", 2)]


def test_secrets_are_not_shown_and_travel() -> None:
    login = {"security_protocol": "sasl_ssl", "sasl_mechanism": "PLAIN", "user": "u", "password": SECRET}
    cluster = Cluster(**{"servers": "k:1", "settings": (("ssl.key.password", SECRET),)} | login)  # type: ignore[arg-type]
    assert SECRET not in repr(cluster)
    assert pickle.loads(pickle.dumps(cluster)) == cluster
    assert cluster.librdkafka_settings()["ssl.key.password"] == SECRET


def test_certificates_that_are_not_there_are_told() -> None:
    with pytest.raises(ConfigError, match="certificates"):
        Cluster(servers="k:1", security_protocol="ssl", tls_ca="/nowhere").tls_context()


def test_settings_that_would_change_messages_do_not_go_along() -> None:
    """Whoever dates or compresses anew changes what was written."""
    changing = {"message.timestamp.type": "LogAppendTime", "compression.type": "gzip", "headgate.sql": "x"}
    assert configs_there(changing | {"retention.ms": "5"}) == {
        "retention.ms": "5",
        "message.timestamp.type": "CreateTime",
        "compression.type": "producer",
    }


def test_the_place_of_a_row_is_in_its_id() -> None:
    assert place_of("a-b-my-topic-with-7-dashes-3-0000000000000000012") == Place(3, 12)
    for wrong in ("", "a-b", "orders-x-12", "0/16B3740"):
        with pytest.raises(DataError, match="no row of a whole batch"):
            place_of(wrong)
