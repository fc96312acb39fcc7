"""The parts that tests are built from; contains no test."""
