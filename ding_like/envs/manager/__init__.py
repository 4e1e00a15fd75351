"""Env managers: many lanes of an environment behind one array interface; file name = registry name."""
