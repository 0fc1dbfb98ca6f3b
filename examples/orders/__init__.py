"""A stateful join on Faust: orders meet their customers, totals are kept in a replicated table."""
