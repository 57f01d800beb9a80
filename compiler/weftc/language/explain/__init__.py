"""Why a token does not fit, in the words of someone who writes specs."""
