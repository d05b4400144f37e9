"""confluent-kafka's own serializers and client, against this registry and a gateway on the same database."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.schema_registry.schema_registry_client import ConfigCompatibilityLevel, ServerConfig
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool

from tests.gateway.servers import running

USER = json.dumps({"type": "record", "name": "User", "fields": [{"name": "name", "type": "string"}]})
WITH_AGE = json.dumps(
    {
        "type": "record",
        "name": "User",
        "fields": [{"name": "name", "type": "string"}, {"name": "age", "type": "int", "default": 7}],
    }
)
PERSON = json.dumps({"title": "Person", "type": "object", "properties": {"name": {"type": "string"}}})
PASSWORD = "secret-enough"


@pytest.fixture
def client(serve: Any) -> Iterator[SchemaRegistryClient]:
    url = serve(users={"ann": PASSWORD}).url
    with SchemaRegistryClient({"url": url, "basic.auth.user.info": f"ann:{PASSWORD}"}) as client:
        yield client


@pytest.fixture
def through(database: str) -> Iterator[Callable[[str, bytes], bytes]]:
    """Send a value through a topic of a gateway, and return what a consumer gets."""
    with running(database) as gateway:

        def send(topic: str, value: bytes) -> bytes:
            producer = Producer({"bootstrap.servers": gateway.bootstrap})
            producer.produce(topic, value)
            assert producer.flush(60) == 0
            consumer = Consumer(
                {"bootstrap.servers": gateway.bootstrap, "group.id": uuid4().hex, "auto.offset.reset": "earliest"}
            )
            consumer.subscribe([topic])
            try:
                message = consumer.poll(60)
                assert message is not None
                assert message.error() is None
                return bytes(message.value() or b"")
            finally:
                consumer.close()

        yield send


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def test_avro_is_written_with_one_version_and_read_with_the_next(client: SchemaRegistryClient, through: Any) -> None:
    value = AvroSerializer(client, USER)({"name": "ann"}, context("users"))
    received = through("users", value)
    assert AvroDeserializer(client)(received, context("users")) == {"name": "ann"}
    assert client.register_schema("users-value", Schema(WITH_AGE, "AVRO")) == 2
    assert AvroDeserializer(client, WITH_AGE)(received, context("users")) == {"name": "ann", "age": 7}


def test_json_is_written_and_read(client: SchemaRegistryClient, through: Any) -> None:
    value = JSONSerializer(PERSON, client)({"name": "ann"}, context("people"))
    received = through("people", value)
    assert JSONDeserializer(None, schema_registry_client=client)(received, context("people")) == {"name": "ann"}


def proto_class() -> Any:
    """A message of one file that uses one of another, as `protoc` would make them."""
    pool = DescriptorPool()
    city = descriptor_pb2.FileDescriptorProto(name="shop/city.proto", package="shop", syntax="proto3")
    city.message_type.add(name="City").field.add(name="name", number=1, type=9, label=1)
    order = descriptor_pb2.FileDescriptorProto(name="shop/order.proto", package="shop", syntax="proto3")
    order.dependency.append("shop/city.proto")
    order.message_type.add(name="Order").field.add(name="to", number=1, type=11, type_name=".shop.City", label=1)
    for file in (city, order):
        pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def test_protobuf_is_written_and_read_with_the_files_that_it_imports(
    client: SchemaRegistryClient, through: Any
) -> None:
    order = proto_class()
    message = order()
    message.to.name = "Bern"
    settings = {"use.deprecated.format": False}
    value = ProtobufSerializer(order, client, settings)(message, context("orders"))
    received = through("orders", value)
    read = ProtobufDeserializer(order, settings, schema_registry_client=client)(received, context("orders"))
    assert read.to.name == "Bern"
    assert client.get_subjects() == ["orders-value", "shop/city.proto"]
    references = client.get_latest_version("orders-value").schema.references or []
    assert [each.subject for each in references] == ["shop/city.proto"]


def test_the_client_finds_its_way_around(client: SchemaRegistryClient) -> None:
    number = client.register_schema("users-value", Schema(USER, "AVRO"))
    assert client.get_schema(number).schema_str == USER
    assert client.lookup_schema("users-value", Schema(USER, "AVRO")).version == 1
    assert client.get_latest_version("users-value").schema_id == number
    assert client.get_version("users-value", 1).subject == "users-value"
    assert client.get_versions("users-value") == [1]
    assert client.test_compatibility("users-value", Schema(WITH_AGE, "AVRO"))
    assert not client.test_compatibility("users-value", Schema('"string"', "AVRO"))
    client.set_config("users-value", ServerConfig(compatibility=ConfigCompatibilityLevel.FULL))
    assert client.get_config("users-value").compatibility_level == ConfigCompatibilityLevel.FULL
    client.set_compatibility("users-value", "NONE")
    assert client.get_compatibility("users-value") == "NONE"
    assert client.delete_version("users-value", 1) == 1
    with pytest.raises(SchemaRegistryError) as refused:
        client.get_versions("users-value")
    assert refused.value.error_code == 40401
    assert client.delete_subject("users-value", permanent=True) == [1]


def test_references_of_json_are_followed_by_the_serializer(client: SchemaRegistryClient, through: Any) -> None:
    city = json.dumps({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]})
    client.register_schema("city.json", Schema(city, "JSON"))
    order = json.dumps({"title": "Order", "type": "object", "properties": {"to": {"$ref": "city.json"}}})
    schema = Schema(order, "JSON", references=[SchemaReference("city.json", "city.json", 1)])
    value = JSONSerializer(schema, client)({"to": {"name": "Bern"}}, context("orders"))
    received = through("orders", value)
    assert JSONDeserializer(schema, schema_registry_client=client)(received, context("orders")) == {
        "to": {"name": "Bern"}
    }
