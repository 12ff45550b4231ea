"""Systems that rank candidates for a query."""
