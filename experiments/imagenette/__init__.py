"""The paper's claim about realistic over-clusterings, in the paper's own regime."""
