"""What Kafka says of one topic: the client, and the questions asked of it."""
