"""Train reinforcement-learning agents from a config file, in one process or many.

Importing this package loads neither torch nor any part; take what you need from its sub-packages.
"""

__version__ = "0.1.0"
