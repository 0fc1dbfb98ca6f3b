"""What the invariants need: members' words read the slow and plain way, apart from the planner's reading."""
