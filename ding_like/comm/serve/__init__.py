"""Serve a policy over HTTP: request and response bodies (`messages`), access control (`access`), and the server.

`http_server` has the routes, `draining` a server that answers what it has received before it closes. Which policy
answers, and how its checkpoints are reloaded, is in `pipeline/serve/`.
"""
