"""Read addresses, and tell those of this machine from those that others reach."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

from ding_like.errors import ConfigError

_EVERY_ADDRESS = ("0.0.0.0", "::", "*", "")
# What to give for a host to listen on.
OWN_HOST = "give an address or a name of this machine (127.0.0.1), or 0.0.0.0 for all of its addresses"
# By whether it is IPv6: the family, an address of other networks (for documentation, RFC 5737 and 3849), the loopback.
_OUTSIDE = {
    False: (socket.AF_INET, "192.0.2.1", "127.0.0.1"),
    True: (socket.AF_INET6, "2001:db8::1", "::1"),
}


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches a host name or address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_known(host: str) -> bool:
    """Tell whether this machine can resolve a host name; addresses, and those for every address, are known."""
    try:
        return host in _EVERY_ADDRESS or bool(socket.getaddrinfo(host, None))
    except (OSError, UnicodeError):  # UnicodeError: an empty or very long part between dots
        return False


def check_known(host: str, option: str, fix: str) -> None:
    """Raise ConfigError for a host name that this machine cannot resolve."""
    if not is_known(host):
        raise ConfigError(f"{option} names the host {host!r}, which this machine cannot resolve; {fix}.")


def reachable(host: str) -> str:
    """Return the address by which other machines reach who listens at `host`, which may stand for every address.

    It is the one that packets to other networks leave by; where there is no way out, the one that the machine's name
    stands for, and the loopback if there is none either.
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
