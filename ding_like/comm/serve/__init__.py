"""Serve a policy over HTTP: what clients send and are answered (`messages`), who may ask, and the server."""
