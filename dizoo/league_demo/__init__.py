"""Self-play and leagues on games whose solution is known."""
