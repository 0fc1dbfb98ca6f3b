"""This worker as a member of its group: joining, heartbeats, fencing, leaving and the watchdog."""
