"""The specs that are meant when the user names none, and other libraries' names of starts. Nothing decides by them."""

CLUSTERING = "lloyd"
MATCHING = "sinkhorn_log"
STARTS = {"spread": "spread", "random": "random", "first": "first", "k-means++": "spread"}  # as written -> initialiser
