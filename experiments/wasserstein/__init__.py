"""Lower bounds on Wasserstein distances, against distances that are known."""
