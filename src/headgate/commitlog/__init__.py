"""Kafka's log in PostgreSQL: tables, and what writes and reads them without an event loop.

    install       the schema `kafka`, brought up to date
    prepare       bytes of a producer -> checked batches, each with the positions of its records
    read          offset -> batches
    append        batches -> offsets, through the one SQL function that may write the log
    configs       what can be set for a topic

The tables are described in `sql/01_log.sql`, what SQL users see of them in `sql/02_door.sql`. The gateway has the same
log with an event loop, see `headgate.gateway.store`.
"""
