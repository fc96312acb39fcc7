"""One day of one topic, from the command line to the commit."""
