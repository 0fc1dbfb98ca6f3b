"""Reports about a plan: its figures, and the reason for one placement."""
