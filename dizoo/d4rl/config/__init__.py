"""Configs of offline learning on MuJoCo tasks, in DI-engine's form."""
