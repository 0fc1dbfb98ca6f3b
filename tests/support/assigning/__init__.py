"""What tests of the assigner service share: its processes, its consumers, its history."""
