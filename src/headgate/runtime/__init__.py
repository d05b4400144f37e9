"""Plumbing of processes: children, locks, files, listening, access checks, ending, failpoints."""
