"""Do one small project with this package and with Stable-Baselines3 and its zoo, and count minutes and lines."""
