"""What runs in a Spark worker: classify records, write files, report."""
