"""Command the parts: what to collect next and with which settings."""

from ding_like.worker.commander.base import BaseSerialCommander

__all__ = ["BaseSerialCommander"]
