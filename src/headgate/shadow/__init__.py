"""Topics of the log as another Kafka cluster has them."""
