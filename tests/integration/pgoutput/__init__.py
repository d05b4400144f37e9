"""Real PostgreSQL servers as the oracle of the wire packages."""
