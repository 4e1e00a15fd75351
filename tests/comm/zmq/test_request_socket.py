"""A server's end of requests: each is taken once and answered alike however often it comes, and nonsense is refused."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import pytest
from ding_like.comm.zmq.request_socket import RequestSocket

from ding_like.comm.channels import Version
from ding_like.comm.zmq.frames import encode
from ding_like.comm.zmq.inference_messages import Refusal, Reply, Request, decode_answer, encode_request
from ding_like.comm.zmq.sockets import EndpointFolder, Poller, open_socket
from tests.support import Clock

OBS = np.float32([[1, 2, 3]])
REPLY = Reply(np.float32([[4, 5]]), {}, Version(1, 2))


class Proxy:
    """Stand for the proxy, whose clients the test plays."""

    def __init__(self, opened: ExitStack) -> None:
        folder = opened.enter_context(EndpointFolder())
        self.socket = opened.enter_context(open_socket("router", bind=folder.endpoint("servers")))
        self._poller = Poller(self.socket)
        self.clock = Clock()
        self.server = RequestSocket(self.socket.endpoint, name="server1.1", forget_s=60.0, clock=self.clock)
        opened.callback(self.server.close)
        self._at_server = Poller(self.server.socket)
        self.server.hello()
        self.next()

    def next(self) -> list[bytes]:
        """Return what the server sent, without its identity."""
        assert self._poller.wait(60), "the server sent nothing"
        return [bytes(frame) for frame in self.socket.receive() or []][1:]

    def answer(self) -> tuple:
        """Return (client, id, server, answer), beats left out."""
        while not (frames := self.next())[0]:
            pass
        return frames[0], *decode_answer(frames[1:])

    def send(self, frames: list, *, client: bytes = b"actor1.1") -> list[Request]:
        """Send a client's message to the server; return the requests that it takes."""
        assert self.socket.send([b"server1.1", client, *frames])
        assert self._at_server.wait(60)
        return self.server.receive()

    def ask(self, number: int, **fields) -> list[Request]:
        made = dict(client="actor1", run_id=1, least=None, follows="", inputs={"obs": OBS}, lanes=None, is_first=None)
        return self.send(encode_request(Request(**{**made, "state": {}, **fields, "id": number})))


@pytest.fixture
def proxy(stack: ExitStack) -> Proxy:
    return Proxy(stack)


def test_a_request_that_comes_again_gets_the_same_answer_and_is_not_taken_twice(proxy):
    (request,) = proxy.ask(1)
    proxy.server.answer(request, REPLY)
    first = proxy.answer()

    assert proxy.ask(1) == []

    _, number, server, reply = proxy.answer()
    assert first[:3] == (b"actor1.1", 1, "server1.1") == (b"actor1.1", number, server)
    np.testing.assert_array_equal(reply.output, REPLY.output)
    assert reply.version == REPLY.version and proxy.server.num_repeated == 1


def test_an_older_request_that_was_answered_is_dropped(proxy):
    for number in (1, 2):
        (request,) = proxy.ask(number)
        proxy.server.answer(request, REPLY)
        proxy.answer()

    assert proxy.ask(1) == []
    assert not proxy._poller.wait(0.05)


def test_a_request_is_not_wanted_once_its_client_asks_the_next(proxy):
    (old,) = proxy.ask(1)
    (new,) = proxy.ask(2)

    assert not proxy.server.is_wanted(old) and proxy.server.is_wanted(new)
    proxy.server.answer(old, REPLY)
    proxy.server.answer(new, REPLY)
    assert proxy.answer()[1] == 2


def test_after_an_unknown_state_the_same_request_is_taken_again(proxy):
    (request,) = proxy.ask(5)
    proxy.server.answer(request, None)
    assert proxy.answer()[1:] == (5, "", None)

    (again,) = proxy.ask(5, state={"h": OBS[:, :1]})

    assert again.id == 5 and list(again.state) == ["h"]


def test_a_new_run_of_a_client_begins_anew_and_an_older_one_is_refused(proxy):
    (request,) = proxy.ask(9)
    proxy.server.answer(request, REPLY)
    proxy.answer()

    (request,) = proxy.ask(1, run_id=2)
    assert request.run_id == 2 and proxy.ask(10, run_id=1) == []

    _, number, _, answer = proxy.answer()
    assert number == 10 and answer.is_final and "a newer run of actor1 is at work" in answer.text


def test_a_garbled_request_is_answered_with_an_error(proxy):
    garbled = {
        "no message": ([b"\xff\xfe"], None),
        "no JSON object": ([b"[1]"], None),
        "another kind": (encode({"kind": "hello", "id": 4}), 4),
        "no observations": (encode({"kind": "infer", "id": 4}), 4),
        "rows of two numbers": (encode({"kind": "infer", "id": 4}, {"obs": OBS, "columns/noise": np.zeros((2, 3))}), 4),
        "an unknown array": (encode({"kind": "infer", "id": 4}, {"obs": OBS, "other": OBS}), 4),
        "a lone number": (encode({"kind": "infer", "id": 4}, {"obs": np.float32(1)}), 4),
        "no rows": (encode({"kind": "infer", "id": 4}, {"obs": OBS[:0]}), 4),
        "no name": (encode({"kind": "infer", "id": 4}, {"obs": OBS}), 4),
        "an id below 0": (encode({"kind": "infer", "id": -4}, {"obs": OBS}), None),
        "a lane below 0": (encode({"kind": "infer", "id": 4}, {"obs": OBS, "lanes": np.array([[-1, 0]])}), 4),
        "a lane too far": (encode({"kind": "infer", "id": 4}, {"obs": OBS, "lanes": np.array([[2**40, 0]])}), 4),
        "lanes of floats": (encode({"kind": "infer", "id": 4}, {"obs": OBS, "lanes": np.zeros((1, 2))}), 4),
        "a version of text": (
            encode({"kind": "infer", "id": 4, "client": "a", "run_id": 1, "follows": "", "least": "x"}, {"obs": OBS}),
            4,
        ),
    }
    for count, (name, (frames, expected)) in enumerate(garbled.items(), 1):
        assert proxy.send(frames) == [], name

        client, number, _, answer = proxy.answer()
        assert (client, number) == (b"actor1.1", expected), name
        assert isinstance(answer, Refusal) and answer.is_final and answer.text, name
        assert proxy.server.num_garbled == count, name
    (request,) = proxy.ask(1)
    assert request.id == 1


def test_words_of_the_proxy_are_no_requests(proxy):
    assert proxy.send([b"ping"], client=b"") == []
    assert proxy.send([], client=b"actor1.1") == []
    assert proxy.server.num_garbled == 0


def test_a_server_that_computes_shows_that_it_is_alive(proxy):
    proxy.clock.now += 10

    with proxy.server.computing():
        frames = proxy.next()

    assert frames == [b"", b"beat"]


def test_beats_come_no_more_often_than_they_are_due(proxy):
    proxy.clock.now += 10
    proxy.server.beat()
    proxy.server.beat()

    assert proxy.next() == [b"", b"beat"]
    assert not proxy._poller.wait(0.05)


def test_clients_that_say_nothing_for_long_are_forgotten(proxy):
    (request,) = proxy.ask(1)
    proxy.server.answer(request, REPLY)
    proxy.clock.now += 61
    proxy.ask(1, client="actor2")

    assert proxy.server.forget() == ["actor1"]
    assert proxy.server.num_clients == 1
    assert len(proxy.ask(1)) == 1  # nothing is known of an answer
