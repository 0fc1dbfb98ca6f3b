"""The planner's promises as checks. The checks read members' claims on their own, without the planner."""
