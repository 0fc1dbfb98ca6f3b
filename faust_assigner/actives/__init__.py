"""Behind the sticky door: how many tasks of each group a member gets, and which ones."""
