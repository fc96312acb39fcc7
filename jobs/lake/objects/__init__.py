"""Lakes in buckets: the ledger holds the truth, and the files of a day are copied to their places then."""
