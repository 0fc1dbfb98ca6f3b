"""Behind the standby door: who keeps a warm copy of each stateful task."""
