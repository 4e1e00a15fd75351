"""The envs of gym_hybrid."""
