"""Runs untrusted programs isolated from the machine. Imported inside the jail, so it must import nothing."""
