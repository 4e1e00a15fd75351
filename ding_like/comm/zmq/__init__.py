"""Rows, weights and inference requests over ZeroMQ: `ipc` on one machine, `tcp` with CURVE across machines.

`sockets` opens sockets, `frames` encodes messages, `keys` admits peers; `row_link` and `row_server` are the two ends of
the row channel, `inference` and `proxy` carry requests, `weights` publishes weights. Nothing in here learns.
"""
