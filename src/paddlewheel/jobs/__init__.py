"""Asynchronous calls: the states of a job, the stores that keep it, the runner that executes it."""
