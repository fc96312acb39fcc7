"""Prove from the lake, and from Kafka while it holds the records, that each was settled exactly once."""
