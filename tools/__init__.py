"""Programs for those who work on headgate."""
