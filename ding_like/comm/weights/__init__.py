"""Weights on their way from a learner to its actors: extract, encode, transport. See docs/weights.md.

extract.py           a module, dict or TensorDict -> tensors by name, and back
encode.py            tensors by name -> one vector of numbers a dtype, with a JSON head; delta.py sends changes
weight_updater.py    push weights to worker ranks by gloo; update_worker.py is their side, node_store.py the words
files.py             files, which comm/rest/ announces and streams; newest.py is a reader's memory
"""
