"""Write an algorithm's three new files, as a user would, where python finds them for the length of a test."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ding_like.utils.registries import MODEL_REGISTRY, POLICY_REGISTRY

# What the configs of such algorithms have in common: a small frozen lake, solved by a return of 1.
LAKE = """
lake = dict(desc=["SFF", "FHF", "FFG"], is_slippery=False)
env = dict(
    env_id="FrozenLake-v1",
    kwargs=lake,
    max_episode_steps=20,
    collector_env_num=4,
    evaluator_env_num=1,
    n_evaluator_episode=1,
    stop_value=1,
)
"""


@contextmanager
def new_package(name: str, tmp_path, monkeypatch, *, model: str, policy: str, config: str) -> Iterator[Path]:
    """Yield the folder of the package `name` with the three files in it; the registries forget them afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))  # the config's folder joins it
    for registry in (POLICY_REGISTRY, MODEL_REGISTRY):
        monkeypatch.setattr(registry, "_classes", dict(registry._classes))
    monkeypatch.setattr("ding_like.entry.training.write_pictures", lambda *args, **kwargs: None)
    folder = tmp_path / name
    folder.mkdir()
    for file, text in (("model", model), ("policy", policy), ("config", config)):
        (folder / f"{file}.py").write_text(text)
    yield folder
    for module in (name, f"{name}.model", f"{name}.policy"):
        sys.modules.pop(module, None)
