"""Prove from a lake, and from Kafka while it still has the records, that each was settled exactly once."""
