"""A schema registry with the HTTP API that Confluent's clients speak, stored in PostgreSQL."""
