"""Configurations that `headgate init` writes, one file each."""

from __future__ import annotations
