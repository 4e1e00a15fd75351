"""Bring a learner's weights to the actors, in three steps: extract, encode, transport. See docs/weights.md.

    extract.py      a module, dict or TensorDict -> tensors by name, and back; names.py matches other nestings
    encode.py       tensors by name -> one vector of numbers a dtype, with a JSON description; delta.py sends changes
    transports      local.py (one process), shared_memory.py with shared_*.py (one machine), torch_dist.py (ranks),
                    files.py (files, which comm/rest/ announces and streams); newest.py is a reader's memory
    updater.py      push weights to worker ranks and know who has them; updater_worker.py is the worker's side.
                    push.py, node_store.py, rank_transport.py and gloo_transport.py, gloo_wire.py carry it out

Each transport passes the contract suite of `WeightPublisher` and `WeightReader`.
"""
