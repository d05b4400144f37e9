"""Rows kept durably on disk between who receives them and who takes them: numbered segments, and dead letters."""
