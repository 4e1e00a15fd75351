"""Tasks of the DeepMind Control Suite; they need the extra `dmc`."""
