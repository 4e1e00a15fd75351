"""Who runs where: pipelines build parts from one config, pick joints, and loop."""
