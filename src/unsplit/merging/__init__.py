"""From distances to a merge tree."""
