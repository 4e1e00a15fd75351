"""Put all of an experiment into one page: `ding report EXP`."""
