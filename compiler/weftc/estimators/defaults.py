"""The specs that are meant when the user names none, and other libraries' names of starts. Nothing decides by them."""

CLUSTERING = "lloyd"
MATCHING = "sinkhorn_log"
STARTS = {  # as written -> initialiser
    "spread": "spread",
    "spectral": "spectral",
    "random": "random",
    "first": "first",
    "k-means++": "spread",
}
