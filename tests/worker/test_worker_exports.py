from __future__ import annotations

import subprocess
import sys

import pytest

import ding_like.worker as worker


def test_every_exported_name_is_there_and_others_are_not() -> None:
    assert [name for name in worker.__all__ if getattr(worker, name).__name__ != name] == []
    assert set(worker.__all__) <= set(dir(worker))
    with pytest.raises(AttributeError, match="BaseLearner"):
        worker.BassLearner  # noqa: B018


def test_importing_the_package_imports_no_torch() -> None:
    code = "import sys, ding_like.worker; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
