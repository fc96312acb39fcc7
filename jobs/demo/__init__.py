"""The demonstration: a real broker of our own, three days of orders, and a check of its own."""
