"""Compiled loops over rows: changes of tables to events (`changes`), and records of Kafka's log (`log`)."""
