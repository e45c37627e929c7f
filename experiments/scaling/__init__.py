"""Memory and time as the number of clusters grows."""
