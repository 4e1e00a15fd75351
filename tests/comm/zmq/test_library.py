"""pyzmq is loaded in one place, which says how to install it, and nothing that runs without it loads it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ding_like.comm.zmq import load_curve, load_zmq
from ding_like.comm.zmq.sockets import open_socket
from ding_like.errors import ConfigError

ROOT = Path(__file__).parents[3]


def test_where_pyzmq_is_missing_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zmq", None)

    with pytest.raises(ConfigError, match=r'pip install "ding-like\[seed\]"'):
        open_socket("router", bind="tcp://127.0.0.1:0")


def test_a_pyzmq_without_curve_is_refused_where_keys_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_zmq(), "has", lambda name: name != "curve")

    with pytest.raises(ConfigError, match=r"without CURVE.*pip install --force-reinstall \"ding-like\[seed\]\""):
        load_curve()


def test_sockets_and_keys_are_imported_without_pyzmq_and_without_torch() -> None:
    code = "import sys, ding_like.comm.zmq.rows; print('zmq' in sys.modules, 'torch' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)

    assert done.stdout == "False False\n", done.stderr
