"""One record: the rules it is read by, its columns, and its way from bytes to typed values or a cause."""
