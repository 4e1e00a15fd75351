"""MiniGrid's grid worlds; they need the extra `minigrid`."""
