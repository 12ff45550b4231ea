"""Files for the schedulers of clusters: batch scripts of Slurm, jobs of KubeRay."""
