"""Every number a task tells: small, exact, each with its interval."""
