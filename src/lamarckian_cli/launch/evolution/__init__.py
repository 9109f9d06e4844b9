"""Evolutions: the workflow around a strategy, its workers, and what it leaves in a run folder."""
