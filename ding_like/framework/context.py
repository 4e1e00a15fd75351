"""Module of DI-engine's, with the message that names its replacement."""

from ding_like.framework import __getattr__ as __getattr__
