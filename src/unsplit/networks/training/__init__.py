"""The one training loop, for networks alone, side by side or stacked into one."""
