"""The order in which a segment's tokens are predicted: rank vectors, made on the device of the tokens."""
