"""The visible effects (duties) of replaced host methods, and our functions that fulfil them."""
