"""The corpus while it is prepared: its rows, the decisions on them, the stored texts, and tasks that write files."""
