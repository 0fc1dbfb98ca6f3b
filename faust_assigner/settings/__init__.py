"""The settings of the package: their names, allowed values and defaults, and their reader."""
