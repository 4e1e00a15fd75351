"""Change a setting or a part of a worker in all workers that belong to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any


class ChangedEverywhere(ABC):
    """Have what is changed be changed in all workers that belong to this one: once each, and acknowledged."""

    def update_algorithm_parameter(self, parameter_name: str, new_parameter_value: Any) -> bool:
        """Set an attribute of `algo` everywhere; "lr" sets the optimizers too. Tell whether all have it."""
        return self._everywhere("update_algorithm_parameter", parameter_name, new_parameter_value)

    def update_storage_parameter(self, parameter_name: str, new_parameter_value: Any) -> bool:
        """Set an attribute of `storage` everywhere; tell whether all have it."""
        return self._everywhere("update_storage_parameter", parameter_name, new_parameter_value)

    def replace_agent_component(self, component_name: str, new_component_factory: Callable[..., Any]) -> bool:
        """Put what a factory makes in the place of a part everywhere, see `CWorker`; tell whether all have it."""
        return self._everywhere("replace_agent_component", component_name, new_component_factory)

    @abstractmethod
    def _everywhere(self, method: str, name: str, value: Any) -> bool:
        """Call a method of every worker, and tell whether all have returned True."""
