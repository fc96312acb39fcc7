"""What has been settled, and what to read next."""
