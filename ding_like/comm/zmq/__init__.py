"""Carry rows, weights and inference requests over ZeroMQ: `ipc` on one machine, `tcp` with CURVE across machines.

`library` loads pyzmq, `sockets` opens sockets, `frames` says what a message is, `keys` who may connect. Nothing in
here learns.
"""
