"""Brings the days of earlier manifest formats to today's: format and names, never a byte of a data file."""
