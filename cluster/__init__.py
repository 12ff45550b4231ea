"""Infrastructure: storage, Ray, jobs, tracking, progress, preflight checks. Imports no other package of permcode."""
