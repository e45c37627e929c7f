"""The neighbour graph and what it says about pairs of clusters."""
