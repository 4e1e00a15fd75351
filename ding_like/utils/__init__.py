"""Hold what every part uses: registries, logging, metrics, checkpoints, seeding, atomic files."""
