"""Columns that travel: schema, batches, rollouts, rows and records."""
