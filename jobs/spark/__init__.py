"""Spark and its JVM; nothing else imports pyspark."""
