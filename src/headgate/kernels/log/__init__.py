"""Kafka's record batches without Python per record: where their records are, and rows to batches."""
