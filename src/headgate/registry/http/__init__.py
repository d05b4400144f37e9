"""The registry over HTTP, as Confluent's clients speak to theirs."""
