"""The `atproto` source: events of an AT Protocol relay, of any by its address, or of headgate's own by its log."""

from __future__ import annotations
