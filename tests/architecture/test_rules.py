"""The checker finds what it should find, and nothing else."""

from __future__ import annotations

import pytest

from tests.architecture.rules import check


@pytest.mark.parametrize(
    ("path", "text", "fault"),
    [
        (
            "policy/dqn.py",
            "import ding_like.worker.learner",
            "policy/dqn.py:1 imports worker.learner (level 5) from level 4",
        ),
        (
            "policy/dqn.py",
            "\nfrom ..worker import learner",
            "policy/dqn.py:2 imports worker.learner (level 5) from level 4",
        ),
        (
            "model/dqn.py",
            "from ding_like.envs import spaces",
            "model/dqn.py:1 imports envs.spaces (level 3) from level 3",
        ),
        (
            "worker/a.py",
            "def f():\n    from ding_like.policy.dqn import DQN",
            "worker/a.py:2 imports policy.dqn.DQN (level 4) from level 5",
        ),
        ("worker/a.py", "from ding_like.model import mlp", "worker/a.py:1 imports model.mlp (level 3) from level 5"),
        (
            "utils/a.py",
            "from ding_like.config.read import x",
            "utils/a.py:1 imports config.read.x (level 1) from level 1",
        ),
        (
            "types.py",
            "try:\n    pass\nfinally:\n    from .utils import log",
            "types.py:4 imports utils.log (level 1) from level 0",
        ),
        (
            "__init__.py",
            "from ding_like.entry import x",
            "__init__.py:1 imports entry.x (level 7) from the package's root",
        ),
        ("helpers/a.py", "", "helpers/a.py:1 belongs to no level"),
        ("utils/a.py", "import torch.nn", "utils/a.py:1 imports torch, and utils loads without it"),
        ("config/a.py", "if x:\n    from torch import nn", "config/a.py:2 imports torch, and config loads without it"),
        (
            "worker/a.py",
            "import tensorboardX",
            "worker/a.py:1 imports tensorboardX, which is imported in utils/metrics.py only",
        ),
        (
            "pipeline/serial.py",
            "from rich.table import Table",
            "pipeline/serial.py:1 imports rich.table.Table, which is imported in",
        ),
        (
            "pipeline/serial.py",
            "def f():\n    import dizoo.x",
            "pipeline/serial.py:2 imports dizoo.x, which is not imported anywhere",
        ),
        ("data/a.py", "import pickle", "data/a.py:1 imports pickle, which is not imported anywhere"),
        ("data/a.py", "x = 1\n" * 501, "data/a.py:501 has 501 lines, at most 500"),
        ("data/a.py", "def f():\n" + "    x = 1\n" * 60, "data/a.py:1 f has 61 lines, at most 60"),
        ("data/a.py", "from numpy import *", "data/a.py:1 imports *"),
        ("data/a.py", "try:\n    pass\nexcept:\n    pass", "data/a.py:3 has a bare except"),
        ("data/a.py", "print(1)", "data/a.py:1 calls print, which is called in entry/ only: log it"),
        (
            "data/a.py",
            "import time\ntime.sleep(1)",
            "data/a.py:2 calls time.sleep, which is called in utils/files.py only",
        ),
        ("data/a.py", "from time import sleep as nap\nnap(1)", "data/a.py:2 calls time.sleep"),
        ("data/a.py", "eval('1')", "data/a.py:1 calls eval, which is called in utils/code_files.py only"),
        ("data/a.py", "exec('1')", "data/a.py:1 calls exec"),
        ("data/a.py", "__import__('os')", "data/a.py:1 calls __import__, which is not called anywhere"),
        (
            "data/a.py",
            "from importlib import import_module\nimport_module('os')",
            "data/a.py:2 calls importlib.import_module",
        ),
        ("data/a.py", "import torch as t\nt.load('x')", "data/a.py:2 calls torch.load without weights_only=True"),
        ("data/a.py", "import torch\ntorch.load('x', weights_only=False)", "data/a.py:2 calls torch.load without"),
        (
            "data/a.py",
            "import numpy as np\nnp.load('x', allow_pickle=True)",
            "data/a.py:2 calls numpy.load with allow_pickle",
        ),
    ],
)
def test_bad_line_is_found(path: str, text: str, fault: str) -> None:
    faults = check({path: text})

    assert len(faults) == 1
    assert faults[0].startswith(fault)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("policy/dqn.py", "from ding_like.model.dqn import DQN\nfrom ..rl_utils import td\nfrom .base import Policy"),
        (
            "worker/a.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ding_like.policy.dqn import DQN",
        ),
        (
            "pipeline/serial.py",
            "from ding_like.worker import x\nfrom ding_like.policy import y\nfrom ding_like import __version__",
        ),
        ("utils/a.py", "def f():\n    import torch"),
        ("model/a.py", "import torch\nmodel.eval()\nself.print(1)\nclock.sleep(1)"),
        ("utils/metrics.py", "import tensorboardX"),
        ("entry/cli.py", "import click\nprint(1)"),
        ("utils/files.py", "import time\ntime.sleep(1)"),
        ("data/a.py", "import torch\ntorch.load('x', weights_only=True)\ntry:\n    pass\nexcept Exception:\n    pass"),
        ("data/a.py", "x = 1\n" * 500),
        ("data/a.py", "def f():\n" + "    x = 1\n" * 59),
    ],
)
def test_good_source_passes(path: str, text: str) -> None:
    assert check({path: text}) == []


def test_circle_of_files_is_found() -> None:
    sources = {
        "data/__init__.py": "from ding_like.data.a import f",
        "data/a.py": "from .b import g",
        "data/b.py": "def g():\n    from ding_like.data import f",
        "data/c.py": "from ding_like.data import f",
    }

    assert check(sources) == ["circle: data/__init__.py <-> data/a.py <-> data/b.py"]


def test_package_that_gathers_its_files_is_no_circle() -> None:
    sources = {
        "data/__init__.py": "from ding_like.data.a import f",
        "data/a.py": "from ding_like.data.b import g",
        "data/b.py": "",
    }

    assert check(sources) == []


def test_faults_come_in_the_order_of_lines() -> None:
    faults = check({"data/b.py": "print(1)\nimport pickle", "data/a.py": "exec('')"})

    assert [fault.split(" ")[0] for fault in faults] == ["data/a.py:1", "data/b.py:1", "data/b.py:2"]


def test_a_package_with_a_limit_is_counted_as_a_whole() -> None:
    sources = {
        "pipeline/ray/a.py": "x = 1\n" * 450,
        "pipeline/ray/b.py": "x = 1\n" * 450,
        "pipeline/c.py": "x = 1\n" * 450,
    }

    assert check(sources) == []
    assert check({**sources, "pipeline/ray/d.py": "x = 1\n" * 301}) == [
        "pipeline/ray/ has 1,201 lines, at most 1,200: move what is of use elsewhere"
    ]
