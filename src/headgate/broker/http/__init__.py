"""The broker over HTTP: server-sent events, and outgoing webhooks."""
