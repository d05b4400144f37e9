"""Doors of the broker for those who do not speak SQL: server-sent events, and webhooks."""
