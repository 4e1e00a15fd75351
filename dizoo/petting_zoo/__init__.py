"""PettingZoo's games and multi-agent tasks."""
