"""Runs programs nobody vouches for, where they can reach nothing. Imported inside the jail: it must import nothing."""
