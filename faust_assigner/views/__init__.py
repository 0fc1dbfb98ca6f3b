"""What a plan says of itself: its numbers, and the reason for one placement."""
