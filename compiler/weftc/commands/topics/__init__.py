"""The texts that `weftc help TOPIC` prints."""
