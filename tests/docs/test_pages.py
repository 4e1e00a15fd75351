"""Pages name what there is: files, classes, messages, targets of make, modules, policies."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ding_like.policy import get_policy_cls
from ding_like.utils.registries import POLICY_REGISTRY
from tests.docs.test_walked_pages import WALKED, blocks_of, commands_of

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "ding_like"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "benchmarks/README.md", *sorted(DOCS.rglob("*.md"))]


@cache
def source() -> str:
    return "\n".join(file.read_text() for file in sorted(PACKAGE.rglob("*.py")))


def test_the_architecture_names_paths_classes_and_functions_that_there_are() -> None:
    text = (DOCS / "architecture.md").read_text()
    code = re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    words = re.findall(r"[\w./]+", "\n".join([*code, *re.findall(r"```(.*?)```", text, re.DOTALL)]))
    paths = {word for word in words if re.search(r"\w/|\.(py|txt|md)$", word)} - {"total_config.py"}
    names = {
        name for each in code if re.fullmatch(r"[A-Z][a-z]\w+(\.\w+)?|[a-z]+_[a-z_]+", each) for name in each.split(".")
    }
    # The picture has a frame for each of these folders.
    folders = (ROOT, PACKAGE, *(PACKAGE / name for name in ("comm", "pipeline", "worker")))

    assert len(paths) > 50 and len(names) > 50
    assert [path for path in paths if not any((folder / path).exists() for folder in folders)] == []
    assert [name for name in names if not re.search(rf"\b{name}\b", source())] == []


def texts() -> Iterator[str]:
    """Yield the texts of the package, with a zero byte in place of what is put into them."""
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(v.value) if isinstance(v, ast.Constant) else "\0" for v in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def first_cells(page: str) -> list[str]:
    rows = [line for line in (DOCS / page).read_text().splitlines() if line.startswith("| ")]
    cells = [re.split(r"(?<!\\) \| ", row.removeprefix("| "))[0] for row in rows]
    return [cell for cell in cells if cell not in ("message", "what is seen")]


def test_the_messages_of_the_pages_are_texts_of_the_package() -> None:
    known = "\n\n".join(texts())

    def is_known(message: str) -> bool:
        parts = [re.escape(part.strip()) for part in re.split(r"\.\.\.+", message) if len(part.strip(" .:;,'()")) > 0]
        return re.search(r"[^\n]*?".join(parts), known) is not None

    messages = [cell.strip("`") for cell in first_cells("messages.md")]
    quoted = [text for cell in first_cells("failures.md") for text in re.findall(r"`([^`]*)`", cell) if " " in text]

    assert len(messages) >= 35 and len(quoted) >= 7 and not is_known("a text that ... no file has")
    assert [message for message in [*messages, *quoted] if not is_known(message)] == []


def test_targets_modules_and_scripts_that_the_pages_call_are_there() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    blocks = [(page, block.text) for page in PAGES if page.name not in WALKED for block in blocks_of(page)]
    lines = [(page.name, line.removeprefix("$ ")) for page, text in blocks for line in commands_of(text)]
    commands = [(page, part.strip()) for page, line in lines for part in line.split(" && ")]

    def is_there(command: str) -> bool:
        if target := re.match(r"make ([\w-]+)$", command):
            return target[1] in targets
        if (module := re.match(r"python -m ([\w.]+)", command)) and module[1] != "pip":
            return importlib.util.find_spec(module[1]) is not None
        file = re.match(r"(?:bash|python) ([\w./]+)", command)
        return file is None or (ROOT / file[1]).is_file()

    assert len(commands) > 100
    assert [(page, command) for page, command in commands if not is_there(command)] == []


def test_every_policy_has_a_page_and_every_page_is_in_its_list() -> None:
    pages = {page.name: page.read_text() for page in (DOCS / "algorithms").glob("*.md")}
    index, text = pages.pop("README.md"), "\n".join(pages.values())
    sources = "".join(file.read_text() for file in (PACKAGE / "policy").glob("*.py"))
    names = re.findall(r'@POLICY_REGISTRY\.register\("(\w+)"\)', sources)

    assert len(names) >= 21
    assert [name for name in names if f"{name}.md" not in pages and f"`{name}`" not in text] == []
    assert set(re.findall(r"\]\((\w+\.md)\)", index)) == set(pages)
    listed = re.findall(r"\((\d\d\d-[\w-]+\.md)\)", (DOCS / "decisions/README.md").read_text())
    assert listed == sorted(page.name for page in (DOCS / "decisions").glob("0*.md")) != []


def test_the_table_of_the_models_page_is_what_policies_declare() -> None:
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (`.*`) \|$", (DOCS / "own_model.md").read_text(), re.MULTILINE)
    shown = {name: methods for names, methods in rows for name in re.findall(r"\w+", names)}
    classes = {name: get_policy_cls(dict(type=name)) for name in POLICY_REGISTRY.names()}
    declared = {
        name: ", ".join(f"`{method}`" for method in cls.model_methods)
        for name, cls in classes.items()
        if getattr(cls, "model_methods", ()) and cls.__module__.startswith("ding_like.")
    }

    assert shown == declared
