"""The same work by each peer, a file each; `run.py` compares and times it in the environment of one of them."""
