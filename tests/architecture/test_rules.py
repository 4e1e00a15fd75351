"""The checker finds what it should find, and nothing else."""

from __future__ import annotations

import pytest

from tests.architecture.rules import check

TRY = "try:\n    x = 1\n"
BROAD = "data/a.py:3 catches any exception without a comment that defends it"
UPWARDS = "policy/dqn.py:1 imports worker.learner (level 5) from level 4"


@pytest.mark.parametrize(
    ("path", "text", "fault"),
    [
        ("policy/dqn.py", "import ding_like.worker.learner", UPWARDS),
        ("policy/dqn.py", "from ..worker import learner", UPWARDS),
        ("model/a.py", "from ding_like.envs import x", "model/a.py:1 imports envs.x (level 3) from level 3"),
        ("worker/a.py", "def f():\n    from ding_like.policy.dqn import D", "worker/a.py:2 imports policy.dqn.D"),
        (
            "worker/a.py",
            "if TYPE_CHECKING:\n    from ding_like.policy.dqn import D",
            "worker/a.py:2 imports policy.dqn",
        ),
        ("worker/a.py", "from ding_like.model import mlp", "worker/a.py:1 imports model.mlp (level 3) from level 5"),
        ("__init__.py", "from ding_like.entry import x", "__init__.py:1 imports entry.x (level 9) from the package"),
        ("helpers/a.py", "", "helpers/a.py:1 belongs to no level"),
        ("utils/a.py", "import torch.nn", "utils/a.py:1 imports torch, and utils loads without it"),
        ("worker/a.py", "import tensorboardX", "worker/a.py:1 imports tensorboardX, which is imported in utils/"),
        ("pipeline/a.py", "def f():\n    import dizoo.x", "pipeline/a.py:2 imports dizoo.x, which is imported in no"),
        ("data/a.py", "x = 1\n" * 801, "data/a.py:801 has 801 lines, at most 800"),
        ("data/a.py", "def f():\n" + "    x = 1\n" * 60, "data/a.py:1 f has 61 lines, at most 60"),
        ("data/a.py", "import torch as t\nt.load('x')", "data/a.py:2 calls torch.load without weights_only=True"),
        ("data/a.py", "import numpy as np\nnp.load('x', allow_pickle=True)", "data/a.py:2 calls numpy.load with allow"),
        ("data/a.py", f"{TRY}except Exception:\n    x = 2", BROAD),
        ("data/a.py", f"{TRY}except Exception:\n    raise", BROAD),
        ("data/a.py", f"{TRY}except (OSError, BaseException) as e:\n    raise A from e", BROAD),
        ("data/a.py", f"{TRY}except:\n    x = 2", BROAD),
    ],
)
def test_bad_line_is_found(path: str, text: str, fault: str) -> None:
    faults = check({path: text})

    assert len(faults) == 1
    assert faults[0].startswith(fault)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            "policy/dqn.py",
            "from ding_like.model.q_networks import DQN\nfrom ..rl_utils import td\nfrom .base import Policy",
        ),
        (
            "__init__.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ding_like.entry import Run",
        ),
        ("utils/a.py", "def f():\n    import torch"),
        ("utils/metrics.py", "import tensorboardX"),
        ("data/a.py", "import torch\ntorch.load('x', weights_only=True)\nx = 1\n" + "y = 1\n" * 497),
        ("data/a.py", f"{TRY}except Exception:  # f() may raise anything\n    x = 2"),
        ("data/a.py", f"{TRY}# f() may raise anything\nexcept BaseException:\n    x = 2"),
        ("data/a.py", f"{TRY}except BaseException:\n    close()\n    raise"),
        ("data/a.py", f"{TRY}except (OSError, gymnasium.error.Error):\n    x = 2"),
    ],
)
def test_good_source_passes(path: str, text: str) -> None:
    assert check({path: text}) == []


@pytest.mark.parametrize("when", ["def g():", "if TYPE_CHECKING:"])
def test_circle_of_files_is_found(when: str) -> None:
    gathering = {"data/__init__.py": "from ding_like.data.a import f", "data/a.py": "from .b import g", "data/b.py": ""}

    assert check(gathering) == []
    assert check({**gathering, "data/b.py": f"{when}\n    from ding_like.data import f"}) == [
        "circle: data/__init__.py <-> data/a.py <-> data/b.py"
    ]
