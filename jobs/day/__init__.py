"""One day, step by step: plan, size, audit, commit; and what a rebuild carries over."""
