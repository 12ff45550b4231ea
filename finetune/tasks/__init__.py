"""One file per downstream task."""
