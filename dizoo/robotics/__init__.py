"""Configs of gymnasium-robotics' environments, whose observations have goals."""
