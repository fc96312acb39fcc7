"""The lake: its port, the lake on disk, and what is read from and changed in it."""
