"""Every setting of the package as data: its name, its allowed values, and the module that reads it."""
