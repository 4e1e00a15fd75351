"""Walk to the far end of a chain, past a nearer reward."""
