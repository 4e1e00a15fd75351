"""The Dockerfile: a linter finds no fault, and its users are those of the manifests."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def lint(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["hadolint", "-"], input=text, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(autouse=True)
def linter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find the linter beside this interpreter, where pip installs it."""
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))


def test_the_linter_finds_no_fault() -> None:
    done = lint(DOCKERFILE)

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("text", "with_fault", "rule"),
    [("USER 10001:10001", "USER root", "DL3002"), ('ENTRYPOINT ["ding"]', "ENTRYPOINT ding", "DL3025")],
)
def test_the_linter_finds_a_fault_that_is_put_in(text: str, with_fault: str, rule: str) -> None:
    assert rule in lint(DOCKERFILE.replace(text, with_fault)).stdout


def test_both_images_run_as_the_user_of_the_manifests() -> None:
    users = re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE)
    stages = re.findall(r"^FROM runtime AS (\w+)$", DOCKERFILE, re.MULTILINE)
    pods = [path.read_text() for path in (ROOT / "entry").glob("kube*/*.yaml") if "securityContext" in path.read_text()]

    assert stages == ["kuberay", "ding"] and users == ["10001:10001"] * 2
    assert len(pods) == 4 and all("runAsUser: 10001, runAsGroup: 10001" in text for text in pods)


def test_what_the_image_is_built_from_is_there() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()

    kept = [line[1:] for line in lines if line.startswith("!")]
    assert "*" in lines and all((ROOT / name).exists() for name in kept)
    assert {"setup.py", "pyproject.toml", "ding_like", "dizoo", "LICENSE", "constraints.txt"} <= set(kept)
