"""Every setting of the package as data: what it is called, what it may be, where it is read."""
