"""What tests are built from; no test is here."""
