"""The estimate for very many clusters: only pairs that are ever confused are stored."""
