"""An answer is the coordinator's, for one request; secrets and clocks of signatures are what they should be.

That a request is what its worker signed, and of this time, is tested over HTTP: see `hostile/`.
"""

from __future__ import annotations

from ding_like.comm.rest.messages import Signer, answer_signature, draw_secret, is_secret, own_key, steady_clock

KEY, SECRET, WORKER = b"c" * 32, "5" * 64, "collector-1"


def test_secrets_are_long_and_different() -> None:
    assert is_secret(draw_secret()) and draw_secret() != draw_secret()
    assert not any(is_secret(text) for text in ("", "0" * 31, "0" * 129, "G" * 64, "0" * 63 + "\n"))


def test_an_answer_is_signed_for_one_worker_request_status_and_body() -> None:
    own = own_key(KEY, WORKER, SECRET)
    signature = answer_signature(own, WORKER, "asked", 200, b"{}")
    signer = Signer("collector", KEY, secret=SECRET)

    assert signer.is_answer(signature, "asked", 200, b"{}", worker=WORKER)
    for asked, status, body, worker in (
        ("other", 200, b"{}", WORKER),
        ("asked", 404, b"{}", WORKER),
        ("asked", 200, b"{ }", WORKER),
        ("asked", 200, b"{}", "collector-2"),
        ("asked", 200, b"{}", ""),
    ):
        assert not signer.is_answer(signature, asked, status, body, worker=worker)
    by_role = answer_signature(KEY, WORKER, "asked", 404, b"{}")
    assert not signer.is_answer(by_role, "asked", 404, b"{}", worker=WORKER)
    assert signer.is_answer(by_role, "asked", 404, b"{}", worker=WORKER, by_role=True)


def test_a_steady_clock_is_moved_by_no_change_of_the_walls() -> None:
    wall, monotonic = [5000.0], [10.0]
    clock = steady_clock(lambda: wall[0], lambda: monotonic[0])

    wall[0] += 600.0
    monotonic[0] += 1.5
    assert clock() == 5001.5
    wall[0] -= 3600.0
    assert clock() == 5001.5
