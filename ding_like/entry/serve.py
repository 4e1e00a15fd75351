"""Serve a run's policy over HTTP: the command `ding serve EXP`, and the same as a function."""

from __future__ import annotations

import json
import logging
import math
import select
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ding_like.entry.options import IMPORT_OPTION, WholeNumber, echo, sub_command

if TYPE_CHECKING:
    from ding_like.serve import ServedPolicy
    from ding_like.serve.http_server import PolicyServer

logger = logging.getLogger(__name__)

_SHOWN_VALUES = 32  # of an observation, in the examples that are printed
_LOOK_S = 5.0  # between two checks whether the server's thread is alive


def serve(
    exp_name: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    checkpoint: str = "best",
    token_file: str | Path | None = None,
    reload_s: float = 1.0,
    max_batch: int = 1024,
    client_wraps: bool = False,
    on_cpu: bool = False,
    import_names: Sequence[str] = (),
    started: Callable[[PolicyServer, ServedPolicy], None] = lambda server, served: None,
) -> None:
    """Serve the policy of an experiment until SIGINT, SIGTERM or SIGHUP; `started` is called when the port is open.

    A newer `checkpoint` ('best', 'newest' or a file) is loaded without a pause. Requests under way are answered before
    the port closes; then the signal takes its usual effect: KeyboardInterrupt, or SystemExit with 128 + its number. A
    second signal does so at once. Raises ConfigError or CheckpointError for a run that cannot be served, CommError for
    a host and port that cannot be opened.
    """
    from ding_like.comm.keys import read_token
    from ding_like.errors import CommError, ConfigError
    from ding_like.pipeline.process import StopSignal, training_process
    from ding_like.serve import Blueprint, CheckpointChoice, ServedPolicy
    from ding_like.serve.http_server import PolicyServer, check_host

    if not math.isfinite(reload_s):
        raise ConfigError(f"reload_s is {reload_s}, expected seconds, such as 1.0.")
    token = None if token_file is None else read_token(token_file)
    check_host(host, token)
    # Forward passes use one thread, as in evaluations; the threads that answer requests start in this context.
    with training_process(), StopSignal() as signals, _signals_wake() as wait:
        blueprint = Blueprint(
            exp_name, client_wraps=client_wraps, on_cpu=on_cpu, max_batch=max_batch, import_names=import_names
        )
        choice = CheckpointChoice(exp_name, checkpoint)
        with ServedPolicy(blueprint, choice, reload_s=reload_s) as served:
            server = PolicyServer(served, host=host, port=port, token=token)
            try:
                server.start()
                started(server, served)
                while signals.received is None:
                    wait(_LOOK_S)
                    if not server.is_alive:
                        raise CommError("the thread that answers requests has ended; the log says why.")
            finally:
                server.close()
                logger.info("%s", closing(server, served))
        signals.leave()


@contextmanager
def _signals_wake() -> Iterator[Callable[[float], object]]:
    """Yield a function that waits for a number of seconds, or until a signal arrives."""
    reader, writer = socket.socketpair()
    with reader, writer:
        writer.setblocking(False)
        before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        try:
            yield lambda wait_s: select.select([reader], [], [], wait_s)
        finally:
            signal.set_wakeup_fd(before)


def opening(url: str, served: ServedPolicy, exp_name: str, *, has_token: bool) -> list[str]:
    """Return the lines that tell where the policy is served and how to send it requests."""
    health = served.health()
    example, num_values = served.reader.example(), served.reader.num_values
    state = f"   state {', '.join(health['state'])}" if health["state"] else ""
    lines = [
        f"serving   {exp_name}: {served.agent.version}",
        f"at        {url}",
        f"env       {health['env']}   policy {health['policy']}{state}",
        f"obs       {_one_line(health['obs'])}",
        f"action    {_one_line(health['action'])}",
    ]
    lines += [f"applied   {', '.join(health['wrappers'])}"] if health["wrappers"] else []
    if health["client_wrappers"]:
        lines.append(f"clients   have to apply {', '.join(health['client_wrappers'])} themselves")
    auth = (
        (" -H 'Authorization: Bearer TOKEN'", ', headers={"Authorization": "Bearer TOKEN"}') if has_token else ("", "")
    )
    if num_values <= _SHOWN_VALUES:
        body = json.dumps({"obs": example})
        lines += [
            f"curl      curl -s {url}/act{auth[0]} -H 'Content-Type: application/json' -d '{body}'",
            f'python    requests.post("{url}/act", json={body}{auth[1]}).json()["action"]',
        ]
    else:
        lines.append(f'python    requests.post("{url}/act", json={{"obs": obs.tolist()}}{auth[1]}).json()["action"]')
    return [*lines, "end it with Ctrl-C"]


def closing(server: PolicyServer, served: ServedPolicy) -> str:
    """Return the summary line for when the port is closed."""
    done = server.requests.describe()
    took = "" if done["p50_ms"] is None else f", p50 {done['p50_ms']:g} ms, p99 {done['p99_ms']:g} ms"
    return (
        f"answered {done['answered']:,} requests{took}; refused {done['refused']:,}; last with {served.agent.version}"
    )


def _one_line(space: dict[str, Any]) -> str:
    if "space" not in space:
        return "  ".join(f"{name}: {_one_line(inner)}" for name, inner in space.items())
    if space["space"] == "Discrete":
        return f"a whole number from {space['start']} to {space['start'] + space['n'] - 1}"
    more = [f"{space['nvec']} choices from {space['start']}"] if "nvec" in space else []
    if space.get("low") and len(space["low"]) <= _SHOWN_VALUES:
        more.append(f"from {space['low']} to {space['high']}")
    return " ".join([space["space"], str(tuple(space["shape"])), space["dtype"], *more])


@sub_command("serve")
@click.argument("experiment", metavar="EXP")
@click.option("--host", default="127.0.0.1", metavar="HOST", help="Where to listen. [127.0.0.1, this machine alone]")
@click.option("--port", type=WholeNumber(0, 65535), default=0, metavar="PORT", help="0 is any that is free. [0]")
@click.option("--checkpoint", default="best", metavar="CKPT", help="best, newest, or a file. [best]")
@click.option("--token-file", metavar="FILE", help="A secret that clients send; needed for hosts that others reach.")
@click.option(
    "--reload-s",
    type=click.FloatRange(min=0.01),
    default=1.0,
    metavar="S",
    help="How often to look for a newer checkpoint. [1]",
)
@click.option(
    "--max-batch", type=WholeNumber(min=1), default=1024, metavar="N", help="Observations in a request. [1024]"
)
@click.option("--client-wraps", is_flag=True, help="Clients apply the wrappers themselves that remember earlier steps.")
@click.option("--cpu", "on_cpu", is_flag=True, help="Serve on the CPU what was trained on a GPU.")
@IMPORT_OPTION
def command(experiment: str, **options: Any) -> None:
    """Answer observations with a trained agent's actions over HTTP: ding serve my_exp --port 8000

    POST /act takes {"obs": ...}, one observation as the env gives it or a batch, and answers {"action": ..., "version":
    ...}; a safetensors body with a tensor `obs` is answered in safetensors. GET /health tells what is served, and how
    fast. A newer checkpoint of the run is taken without a pause, and every answer names the one that chose its actions.
    """

    has_token = options["token_file"] is not None
    serve(
        experiment,
        **options,
        started=lambda server, served: echo("\n".join(opening(server.url, served, experiment, has_token=has_token))),
    )
