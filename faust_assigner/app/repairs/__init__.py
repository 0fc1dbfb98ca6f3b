"""What Faust does wrong around a rebalance, and the classes mixed into the app that do it right."""
