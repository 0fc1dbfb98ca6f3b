"""A pytest plugin: tests of an ``xdist_group`` run in one process, whatever their ids are.

xdist writes the group into a test's id, which pytest 9.2 no longer allows. Here every worker
records the groups of its collected tests, and the scheduler reads them.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass the folder for groups and the priority to an xdist worker."""
    from tests.support.turns import niceness

    if not hasattr(node.config, "groups_folder"):
        node.config.groups_folder = folder = tempfile.mkdtemp(prefix="faust-assigner-groups-")
        node.config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    node.workerinput["groups_folder"] = node.config.groups_folder
    node.workerinput["niceness"] = niceness(
        node.workerinput["workerid"], node.config.getvalue("dist")
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Write the groups to the folder before the scheduler gets the tests."""
    if told := getattr(session.config, "workerinput", {}):
        os.nice(told["niceness"])
        groups = {
            item.nodeid: mark.args[0]
            for item in session.items
            if (mark := item.get_closest_marker("xdist_group"))
        }
        (Path(told["groups_folder"]) / told["workerid"]).write_text(json.dumps(groups))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out the tests of ``--dist loadgroup`` by these groups."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from tests.support.turns import Turns

    return Turns(config, log)
