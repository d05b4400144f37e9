"""The `webhook` source: HTTP requests, durable on disk before they are answered."""

from __future__ import annotations
