"""Where rows go: one package per kind."""
