"""Registries find classes by name and say what is wrong when they cannot."""

from __future__ import annotations

import importlib
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ding_like.config import read_config
from ding_like.errors import ConfigError, RegistryError
from ding_like.utils.registries import BUFFER_REGISTRY, POLICY_REGISTRY, Registry

SHAPE_MODULE = """
from {package} import SHAPES

@SHAPES.register("{name}")
class {class_name}:
    def __init__(self, size=1):
        if size < 0:
            raise KeyError("size below zero")
        self.size = size
"""


@pytest.fixture
def shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """Yield a registry whose home package has circle.py, square.py and broken.py."""
    home = tmp_path / "shapes_home"
    home.mkdir()
    init = 'from ding_like.utils.registries import Registry\nSHAPES = Registry("shape", "shapes_home")\n'
    (home / "__init__.py").write_text(init)
    for name in ("circle", "square"):
        source = SHAPE_MODULE.format(package="shapes_home", name=name, class_name=name.capitalize())
        (home / f"{name}.py").write_text(source)
    (home / "broken.py").write_text("import package_that_is_not_installed\n")
    (home / "_private.py").write_text("raise RuntimeError('private modules are not listed')\n")
    extra = SHAPE_MODULE.format(package="shapes_home", name="star", class_name="Star")
    (tmp_path / "shapes_extra.py").write_text(extra)
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    import shapes_home

    yield shapes_home.SHAPES
    for module in set(sys.modules) - before:
        del sys.modules[module]


def test_name_imports_the_home_module_of_that_name(shapes: Registry) -> None:
    assert shapes.get("circle").__name__ == "Circle"
    assert "shapes_home.square" not in sys.modules
    assert shapes.get("star", ["shapes_extra"]).__name__ == "Star"
    assert "circle" in shapes and "circel" not in shapes


def test_command_suffix_finds_the_plain_class_unless_one_is_registered_with_it(shapes: Registry) -> None:
    assert shapes.get("circle_command") is shapes.get("circle")

    @shapes.register("circle_command")
    class CircleCommand:
        pass

    assert shapes.get("circle_command") is CircleCommand
    assert shapes.get("circle") is not CircleCommand


def test_alias_finds_its_target_before_the_target_is_imported_and_is_taken(shapes: Registry) -> None:
    shapes.alias("round", "circle")

    assert shapes.get("round").__name__ == "Circle"
    canonical = [shapes.canonical(name) for name in ("circle", "circle_command", "round", "unknown")]
    assert canonical == ["circle", "circle", "circle", "unknown"]
    with pytest.raises(RegistryError, match="alias of 'circle'"):
        shapes.register("round")(type("Round", (), {}))
    with pytest.raises(RegistryError, match="'circle' is taken"):
        shapes.alias("circle", "square")


def test_modules_table_overrides_the_file_name_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "from ding_like.utils.registries import Registry\n"
    source += 'KINDS = Registry("kind", "kinds_home", modules={"a": "kinds_a"})\n'
    (tmp_path / "kinds_home.py").write_text(source)
    source = SHAPE_MODULE.replace("SHAPES", "KINDS").format(package="kinds_home", name="a", class_name="A")
    (tmp_path / "kinds_a.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    import kinds_home

    assert kinds_home.KINDS.get("a").__module__ == "kinds_a"
    assert kinds_home.KINDS.names() == ["a"]


def test_home_may_be_a_plain_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = 'from ding_like.utils.registries import Registry\nHOOKS = Registry("hook", "hooks_home")\n'
    source += '@HOOKS.register("save")\nclass Save: ...\n@HOOKS.register("show")\nclass Show: ...\n'
    (tmp_path / "hooks_home.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    import hooks_home

    assert hooks_home.HOOKS.get("save") is hooks_home.Save
    assert hooks_home.HOOKS.names() == ["save", "show"]


def test_unknown_name_says_close_names_known_names_and_failed_imports(shapes: Registry) -> None:
    with pytest.raises(RegistryError) as caught:
        shapes.get("circel", ["no_such_package.shapes"])

    text = str(caught.value)
    assert "unknown shape 'circel'; did you mean 'circle'?" in text
    assert "known: circle, square" in text
    assert "import no_such_package.shapes: no module no_such_package" in text
    assert "import shapes_home.circel: no module shapes_home.circel" in text
    assert isinstance(caught.value, KeyError)
    for name in (None, "", 3):
        with pytest.raises(RegistryError, match="non-empty str"):
            shapes.get(name)


def test_imports_that_fail_are_named_those_of_ding_only_if_the_name_is_unknown(shapes: Registry) -> None:
    for name, import_names, message in (
        ("broken", [], "shapes_home.broken: ModuleNotFoundError: .*package_that_is_not_installed"),
        ("circle", ["no_such_module"], "import no_such_module: no module no_such_module"),
        ("star", ["ding.nowhere"], "import ding.nowhere: no module ding_like.nowhere"),
    ):
        with pytest.raises(RegistryError, match=message):
            shapes.get(name, import_names)
    assert shapes.get("circle", ["ding.no_such_module"]).__name__ == "Circle"


def test_second_class_under_one_name_is_refused_unless_its_module_was_reloaded(shapes: Registry) -> None:
    old = shapes.get("circle")

    with pytest.raises(RegistryError, match=r"registered twice, by shapes_home.circle.Circle .*circle.py:4.* and "):
        shapes.register("circle")(type("Other", (), {}))
    del sys.modules["shapes_home.circle"]

    __import__("shapes_home.circle")

    assert shapes.get("circle") is not old


def test_build_lets_the_constructors_own_key_error_through(shapes: Registry) -> None:
    assert shapes.build("circle", size=3).size == 3
    with pytest.raises(KeyError, match="size below zero") as caught:
        shapes.build("circle", -1)

    assert not isinstance(caught.value, RegistryError)


def test_describe_tells_class_and_line_of_every_name_in_the_home(shapes: Registry) -> None:
    rows = shapes.describe()

    assert [row[:2] for row in rows] == [("circle", "Circle"), ("square", "Square")]
    assert rows[0][2].endswith("circle.py:4")


def test_deque_is_an_alias_of_the_naive_buffer() -> None:
    assert BUFFER_REGISTRY.get("deque") is BUFFER_REGISTRY.get("naive")


def test_importing_the_registries_loads_no_torch() -> None:
    code = "import sys, ding_like.utils.registries; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_class_may_have_a_name_for_those_alone_who_import_its_module() -> None:
    registry: Registry = Registry("env", "json")

    @registry.register("game")
    class Game: ...

    @registry.register_by_import("game")
    class Team: ...

    assert registry.get("game") is Game
    assert registry.get("game", ["json"]) is Game
    assert registry.get("game", ["json", Team.__module__]) is Team
    assert registry.names() == ["game"]


def test_an_import_path_whose_module_imports_gym_names_its_line_and_gymnasium(shapes, tmp_path, monkeypatch) -> None:
    (tmp_path / "old_gym_shape.py").write_text("import gym\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "gym", None)  # an installed one is hidden

    with pytest.raises(RegistryError, match=r"old_gym_shape\.py:1\); .*import gymnasium as gym"):
        shapes.get("old_gym_shape:Shape")


def test_every_policy_is_found_by_its_name_alone() -> None:
    for name in POLICY_REGISTRY.names():
        module = POLICY_REGISTRY.get(name).__module__
        if module.startswith("ding_like."):  # others are of tests
            assert module == POLICY_REGISTRY._modules.get(name, f"{POLICY_REGISTRY.home}.{name}"), name


CONFIGS = "main_config = create_config = dict(a=type(SampleSerialCollector))\n"


@pytest.fixture(autouse=True)
def _restore_sys_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    if importlib.util.find_spec("ding") is not None:
        pytest.skip("DI-engine is installed here, and is imported itself")


def test_a_config_file_may_import_ding_and_afterwards_there_is_none(tmp_path, caplog) -> None:
    path, finders = tmp_path / "a_config.py", list(sys.meta_path)
    path.write_text("from ding.worker import SampleSerialCollector\nimport ding.worker.learner\n" + CONFIGS)

    with caplog.at_level(logging.INFO, logger="ding_like"):
        read_config(path)

    said = "a_config.py imports ding.worker.learner: it gets ding_like's; import that in its place"
    assert [record.message for record in caplog.records] == [said]
    assert sys.meta_path == finders
    assert not [name for name in sys.modules if name.split(".")[0] == "ding"]
    assert sys.modules["ding_like.worker"].__spec__.name == "ding_like.worker"  # type: ignore[union-attr]
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("ding.worker")


def test_a_module_that_is_not_here_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a_config.py"
    path.write_text("from ding.world_model import base\n")

    with pytest.raises(ConfigError, match=r"DI-engine's ding\.world_model would be ding_like\.world_model here"):
        read_config(path)
