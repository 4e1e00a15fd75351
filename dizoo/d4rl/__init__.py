"""D4RL's tasks, by data of one's own."""
