"""Read the address of a coordinator as users type it."""

from __future__ import annotations

from urllib.parse import urlsplit

from ding_like.errors import ConfigError


def coordinator_url(text: str) -> str:
    """Return the URL of "http://host:port" or "host:port"; raises ConfigError for anything else."""
    url = (text if "://" in text else f"http://{text}").rstrip("/")
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and parts.hostname and parts.port
    except ValueError:  # a port that is no number, or too large
        is_url = False
    if not is_url:
        raise ConfigError(
            f"the coordinator's address is {text!r}; expected what it said at its start, http://HOST:PORT."
        )
    return url
