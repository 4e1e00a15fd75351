"""Atari games; they need the extra `atari`."""
