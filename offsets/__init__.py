"""The offsets that are settled, and the planning of those to read next."""
