"""State comes back: files on disk, snapshots, and batched replay of a changelog.

``recovery`` installs it in an app, over Faust's own recovery. ``bring_up`` is the job that runs in a thread,
``batched_replay`` the writer it ends with, ``disk`` the look at what is there. What Faust's own loop gets
wrong is mended elsewhere, in ``repairs/recovery_loop``.
"""
