"""Copies a lake to another place, of any kind, day by day: the same files and manifests, byte for byte."""
