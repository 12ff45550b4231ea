"""Where processes run: storage, Ray, jobs, tracking, progress, preflight checks. Imports nothing of ours."""
