"""Stand where DI-engine has a module, to say what takes its place."""

from ding_like.framework import __getattr__ as __getattr__
