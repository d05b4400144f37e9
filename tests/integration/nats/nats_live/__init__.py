"""Tests against a real nats-server, and against servers that only pretend to be one."""
