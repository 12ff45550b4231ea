"""The config of a run, its stage graph, and the files of its folder."""
