"""Networks: what they are made of, and how they are trained."""
