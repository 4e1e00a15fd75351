"""Names that scripts written for DI-engine import from its `ding.torch_utils`; each name is imported on first use."""

from __future__ import annotations

from ding_like.utils.registries import lazy_exports

_CONVERT = "ding_like.utils.data"
_HOMES = {
    "Adam": "ding_like.torch_utils.optimizer_helper",
    "to_device": _CONVERT,
    "to_dtype": _CONVERT,
    "to_list": _CONVERT,
    "to_ndarray": _CONVERT,
    "to_tensor": _CONVERT,
}
# DI-engine's that are not here -> what to use.
_INSTEAD = {
    "MLP": "use build_mlp of ding_like.model",
    "build_checkpoint_helper": "use load_state and save_state of ding_like.utils.checkpoint",
    "fc_block": "use build_mlp of ding_like.model",
    "model_save": "use save_state of ding_like.utils.checkpoint",
    "tensors": "use to_tensor",
}

__all__ = [*_HOMES]

__getattr__, __dir__ = lazy_exports(__name__, _HOMES, instead=_INSTEAD)
