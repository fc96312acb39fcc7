"""The steps of one day: plan, tasks, audit, commit; and the additional steps of a rebuild."""
