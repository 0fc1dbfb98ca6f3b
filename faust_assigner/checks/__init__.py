"""Check a plan against the planner's promises; the checks derive owners and copies independently.

``A1``  each partition has one owner, a subscribed member
``A2``  the partitions of a task stay together, and a changelog stays with its source
``A3``  each task has its standbys, on distinct members and racks; warm-ups are within their limits
``A4``  actives and standbys are spread evenly
``A5``  tasks do not move without need, and orphaned tasks go to members that hold their state
``A6``  unchanged input gives an unchanged plan
``A8``  the order of the members has no effect
"""
