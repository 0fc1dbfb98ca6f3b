"""Bytes between members: what a member says when it joins, and what the leader answers."""
