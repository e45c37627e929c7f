"""Read observations and labels from files and folders."""
