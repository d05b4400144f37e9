"""Where rows come from: one package per source."""
