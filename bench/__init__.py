"""Measurements, apart from the tests: `python -m bench NAME [--json] [--quick]`."""
