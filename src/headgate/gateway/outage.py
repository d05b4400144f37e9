"""What is raised when PostgreSQL does not answer."""

from __future__ import annotations

import psycopg
from psycopg_pool import PoolTimeout

__all__ = ["NO_DATABASE"]

NO_DATABASE = (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout, TimeoutError)
