"""The top: command line, recipes, stage graph, report."""
