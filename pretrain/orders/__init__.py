"""In which order a segment's tokens are predicted: orders as rank vectors, made where the tokens are."""
