"""What messages name exists: extras, commands, keys of a config."""

from __future__ import annotations

import ast
import contextlib
import functools
import re
import runpy
import shlex
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ding_like.config.schema import ENV_TEMPLATE, PARTS, TOP_TEMPLATE, class_defaults
from ding_like.config.tree import join, leaves
from ding_like.entry import cli
from ding_like.pipeline.parallel.settings import SYSTEM_TEMPLATE
from ding_like.pipeline.settings import RankSettings, RaySettings, SeedSettings
from ding_like.utils.bounds import declared
from ding_like.utils.registries import EXTRA_OF, TRACKER_REGISTRY, install_hint, pip_line


@pytest.fixture(scope="module")
def setup_py() -> dict[str, Any]:
    """Return what setup.py defines."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr("setuptools.setup", lambda **kwargs: None)
        return runpy.run_path(str(ROOT / "setup.py"))


def test_names_of_extras_are_the_same_for_every_pip(setup_py: dict[str, Any]) -> None:
    aliases = setup_py["ALIASES"]

    assert all(re.fullmatch(r"[a-z0-9]+", name) for name in setup_py["EXTRAS"] if name not in aliases)
    assert all(setup_py["EXTRAS"][alias] == setup_py["EXTRAS"][name] for alias, name in aliases.items())


def test_every_module_that_may_be_missing_has_an_extra_that_brings_it(setup_py: dict[str, Any]) -> None:
    brings = {name: " ".join(packages).lower() for name, packages in setup_py["EXTRAS"].items()}
    distribution = {"PIL": "pillow", "cv2": "opencv-python-headless", "zmq": "pyzmq", "sklearn": "scikit-learn"}
    distribution |= {"ale_py": "ale-py", "gymnasium_robotics": "gymnasium-robotics", "pygame": "pygame-ce"}

    for module, extra in EXTRA_OF.items():
        assert distribution.get(module, module).lower() in brings[extra], (module, extra)


def test_pip_lines_are_written_in_one_place() -> None:
    assert [text for text in texts() if re.search(r"ding-like\[[a-z{]", text.value)] == []
    assert pip_line("viz") == 'pip install "ding-like[viz]"'


def test_every_pip_line_names_an_extra(setup_py: dict[str, Any]) -> None:
    named = [(file, line, call.args[0].value) for file, line, call in calls_of("pip_line") if _is_text(call.args[0])]
    for file, line, call in calls_of("import_library"):
        named += [(file, line, each.value.value) for each in call.keywords if each.arg == "extra"]
    named += [(name, 0, TRACKER_REGISTRY.get(name).extra) for name in TRACKER_REGISTRY.names()]
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "dizoo").rglob("*.py")]:
        found = re.findall(r"ding-like\[([\w,-]+)\]", page.read_text(encoding="utf-8"))
        named += [(str(page), 0, each) for names in found for each in names.split(",")]

    assert len(named) > 20
    assert [each for each in named if each[2] not in setup_py["EXTRAS"] or each[2] in setup_py["ALIASES"]] == []


def test_the_line_that_installs_what_an_import_lacks() -> None:
    missing = ModuleNotFoundError("No module named 'minigrid.core'", name="minigrid.core")
    told = RuntimeError("no env")
    told.__cause__ = missing

    assert install_hint(told) == '; install it with: pip install "ding-like[minigrid]"'
    assert install_hint(ModuleNotFoundError("No module named 'my_envs'", name="my_envs")) == ""
    assert pip_line("seed", options="--force-reinstall") == 'pip install --force-reinstall "ding-like[seed]"'


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def test_every_command_of_a_message_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    found = sorted({(f"{text.file}:{text.line}", command) for text, command in commands()})
    wrong, options = [], functools.cache(lambda *words: options_of(capsys, *words))
    for where, command in found:
        words = shlex.split(command.replace("...", "serial"))[1:]
        is_sub_command = bool(words) and words[0] in cli.SUB_COMMANDS
        known = options(words[0]) if is_sub_command else options()
        given = {word for word in words if word.startswith("-")} - {"-h"}
        modes = {value for name, value in pairwise(words) if name in ("-m", "--mode") and value != "1"}
        if not given <= known or not modes <= set(cli.MODES):
            wrong.append((where, command))
        if words and not is_sub_command and not words[0].startswith("-"):
            wrong.append((where, command))

    assert len(found) > 40 and wrong == []


def options_of(capsys: pytest.CaptureFixture[str], *words: str) -> set[str]:
    """Return the options that `ding ... --help` lists."""
    with contextlib.suppress(SystemExit):
        cli.main([*words, "--help"])
    return set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", capsys.readouterr().out))


KEY = re.compile(r"(?<![\w./])(?:policy|env|create_config|system|resume|learners)(?:\.[a-z_][a-z_0-9]*)+\b(?![(/:])")
# Files that are about the keys of DI-engine's configs, which have other names.
ABOUT_OTHERS = ("config/legacy", "config/di_engine", "config/translate", "utils/registries")


# Keys that no class has defaults for, and names of Python's with a dot in them.
ALSO = {
    "create_config.ignore_missing",
    "env.act_scale",
    "env.replay_path",
    "learners.store",
    "policy.command_mode",
    "policy.eval_mode",
    "policy.forward",
    "policy.learn.resume_training",
    "policy.learn_mode",
    "policy.other.commander",
    "system.weights.delta",
    "system.weights.dtype",
}


def known_keys() -> set[str]:
    """Return every path of a config that some class has, sections among them."""
    found = ALSO | {path for path, _ in leaves(TOP_TEMPLATE)} | {join("env", key) for key in ENV_TEMPLATE}
    for part in PARTS:
        found |= {
            f"create_config.{part.name}",
            f"create_config.{part.name}.type",
            f"create_config.{part.name}.import_names",
        }
        for name in part.registry.names():
            cls = part.registry.get(name)
            own = [*(path for path, _ in leaves(class_defaults(cls))), *declared(cls, "config_types")]
            found |= {
                join(part.path, path) for path in [*own, *getattr(cls, "config_free", ()), "type", "import_names"]
            }
    found |= {f"system.{key}" for key in SYSTEM_TEMPLATE}
    for name, settings in (("ray", RaySettings()), ("seed", SeedSettings()), ("ranks", RankSettings())):
        found |= {f"system.{name}.{path}" for path, _ in leaves(asdict(settings))}
    return found | {path.rpartition(".")[0] for path in found} | {path.rsplit(".", 2)[0] for path in found}


def named_keys() -> Iterator[tuple[Text, str]]:
    for text in texts():
        if not any(part in text.file for part in ABOUT_OTHERS):
            yield from ((text, key) for key in KEY.findall(text.value))


def test_every_key_that_a_message_names_is_one() -> None:
    known = known_keys()
    unknown = {
        (text.file, text.line, key)
        for text, key in named_keys()
        if key not in known and not key.startswith("policy.model.")
    }

    assert len(list(named_keys())) > 100
    assert unknown == set()


ROOT = Path(__file__).parents[2]


class Text(NamedTuple):
    """One text of a source file. Where it is put together, "1" stands for the parts that only a run knows."""

    file: str
    line: int
    value: str


@cache
def texts() -> list[Text]:
    """Return every text of ding_like that is no docstring."""
    found: list[Text] = []
    for path in sorted((ROOT / "ding_like").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        skipped = {id(node) for node in _docstrings(tree)}
        found += [Text(str(path.relative_to(ROOT)), line, text) for line, text in _walk(tree, skipped)]
    return found


def _docstrings(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


def _walk(node: ast.AST, skipped: set[int]) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.JoinedStr):
        parts = [str(part.value) if isinstance(part, ast.Constant) else "1" for part in node.values]
        yield node.lineno, "".join(parts)
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
        yield node.lineno, node.value
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, skipped)


def commands() -> Iterator[tuple[Text, str]]:
    """Yield every `ding ...` command of a message: between back-ticks, or to the end of its line."""
    for text in texts():
        for found in re.finditer(r"`(ding [^`]+)`|(?:^|: |by  |with )(ding (?:-|[a-z])[^\n`;]*)", text.value):
            command = (found[1] or found[2]).strip(" .,)")
            yield text, re.split(r"(?:,|\s{2,}| or ding | to | and | \()", command)[0].strip(" .,")


def calls_of(name: str) -> Iterator[tuple[str, int, ast.Call]]:
    """Yield (file, line, call) of every call of a function of this name."""
    for path in sorted((ROOT / "ding_like").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", None)) == name:
                yield str(path.relative_to(ROOT)), node.lineno, node
