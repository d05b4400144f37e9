"""Worlds to try headgate in: a shop, a simulated AT Protocol network with liars, and the live view of `make demo`."""
