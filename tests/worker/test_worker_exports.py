from __future__ import annotations

import subprocess
import sys

import pytest

import ding_like.worker as worker


@pytest.mark.parametrize("name", worker.__all__)
def test_every_exported_name_is_there(name: str) -> None:
    assert getattr(worker, name).__name__ == name


def test_dir_lists_the_exported_names() -> None:
    assert set(worker.__all__) <= set(dir(worker))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="BaseLearner"):
        worker.BassLearner  # noqa: B018


def test_importing_the_package_imports_no_torch() -> None:
    code = "import sys, ding_like.worker; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
