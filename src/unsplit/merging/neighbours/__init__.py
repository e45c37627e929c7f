"""The graph of nearest neighbours as evidence about pairs of clusters."""
