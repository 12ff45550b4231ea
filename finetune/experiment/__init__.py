"""An experiment: one task, its data, and several systems trained and judged alike, over several seeds."""
