"""What a run is and what lies in its folder: config, stage graph, records."""
