"""Where the days lie: the store's operations, and looks at what is there."""
