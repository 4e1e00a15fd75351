"""Run training: build parts from one config, connect roles by channels, and loop."""
