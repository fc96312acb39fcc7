"""The command line: commands, what they print, and the streams that they print to."""
