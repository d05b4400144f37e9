"""Bytes to values and back, sans-IO: no socket, loop, clock or third-party package in here."""
