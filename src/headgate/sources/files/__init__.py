"""The `files` source: lines of files that grow, rotate and come and go, and Parquet files."""

from __future__ import annotations
