"""Kafka's requests and responses, one module per family; every class's annotations are its definition."""
