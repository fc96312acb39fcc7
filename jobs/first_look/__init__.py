"""A first look at a topic: one record with its verdict, and a config proposed from a sample."""
