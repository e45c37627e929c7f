"""What the paper's discussion proposes, tried out."""
