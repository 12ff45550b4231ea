"""The steps of preparation, from reading to finishing, in the driver and its tasks."""
