"""What this machine has: its addresses beside those of others, its memory, its cores."""

from __future__ import annotations

import ipaddress
import math
import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

from ding_like.errors import ConfigError

# The fix of a host name to listen on that is unknown.
OWN_HOST = "give an address or a name of this machine (127.0.0.1), or 0.0.0.0 for all of its addresses"
_EVERY_ADDRESS = ("0.0.0.0", "::", "*", "")
# By whether it is IPv6: the family, an address of other networks (for documentation, RFC 5737 and 3849), the loopback.
_OUTSIDE = {
    False: (socket.AF_INET, "192.0.2.1", "127.0.0.1"),
    True: (socket.AF_INET6, "2001:db8::1", "::1"),
}
_GIB = 2**30


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host name or address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_known(host: str) -> bool:
    """Return whether this machine can resolve a host name; addresses, and those for every address, are known."""
    try:
        return host in _EVERY_ADDRESS or bool(socket.getaddrinfo(host, None))
    except (OSError, UnicodeError):  # UnicodeError: an empty or very long part between dots
        return False


def check_known(host: str, option: str, fix: str) -> None:
    """Raise ConfigError for a host name that this machine cannot resolve."""
    if not is_known(host):
        raise ConfigError(f"{option} names the host {host!r}, which this machine cannot resolve; {fix}.")


def reachable(host: str) -> str:
    """Return the address by which other machines reach a server that listens at `host`, perhaps on every address.

    It is the one that packets to other networks leave by; without a route to them, the one that the machine's name
    resolves to, and the loopback if there is none either.
    """
    if host not in _EVERY_ADDRESS:
        return host
    family, outside, loopback = _OUTSIDE[":" in host]
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as way_out:
            way_out.connect((outside, 9))  # sends nothing: it only chooses the way
            return str(way_out.getsockname()[0])
    except OSError:
        pass  # there is no way out: the name may still be known
    try:
        found = {str(each[4][0]) for each in socket.getaddrinfo(socket.gethostname(), None, family)}
    except OSError:
        found = set()
    return min((each for each in found if not is_loopback(each)), default=loopback)


def reachable_url(url: str) -> str:
    """Return a URL, `http://HOST:PORT`, with the host as others reach it."""
    scheme, _, place = url.partition("://")
    host, _, port = place.rpartition(":")
    found = reachable(host.strip("[]"))
    return f"{scheme}://{f'[{found}]' if ':' in found else found}:{port}"


def coordinator_url(text: str) -> str:
    """Return the URL of "http://host:port" or "host:port"; raises ConfigError for anything else."""
    url = (text if "://" in text else f"http://{text}").rstrip("/")
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and parts.hostname and parts.port
    except ValueError:  # a port that is no number, or too large
        is_url = False
    if not is_url:
        raise ConfigError(f"the coordinator's address is {text!r}; expected http://HOST:PORT, as it logs at its start.")
    return url


def num_cores() -> int:
    """Return how many CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_bytes() -> float:
    """Return how much memory can be allocated without swapping; infinity where the system does not report it."""
    found = [math.inf]
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        found += [int(limit)] if limit.isdecimal() else []  # of a container; "max": none
    except OSError:  # no such file: another system than Linux, or no cgroup
        pass
    return min(found)


def check_memory(needed: int, *, what: str, fix: str) -> None:
    """Raise ConfigError if `needed` bytes are more than are available.

    Linux grants more memory than there is, and later kills the process that uses it: so this is checked before.
    """
    available = available_bytes()
    if needed > available:
        raise ConfigError(
            f"{what} needs {needed / _GIB:,.1f} GiB of memory, {available / _GIB:,.1f} GiB are available: {fix}."
        )


def check_buffer_memory(rows: int, row_bytes: int) -> None:
    """Raise ConfigError for a replay buffer of so many rows that memory cannot hold them."""
    fits = available_bytes() / 2 / max(row_bytes, 1)
    check_memory(
        rows * row_bytes,
        what=f"policy.other.replay_buffer.replay_buffer_size is {rows:,}, which at {row_bytes:,} bytes a row",
        fix=f"give {int(fits) if fits < math.inf else rows:,} or fewer",
    )
