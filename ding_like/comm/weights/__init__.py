"""Weights on their way from a learner to its actors: extract, encode, transport. See docs/weights.md.

extract.py           a module, dict or TensorDict -> tensors by name, and back
encode.py            tensors by name -> the bytes of a safetensors file, or the blocks that changed
weight_updater.py    push weights to worker ranks by gloo; update_worker.py is the workers' side, with the control words
files.py             files, which comm/rest/ announces and streams
"""
