"""Blocks of README and docs: every one has a language, Python runs, what cannot run at least parses."""

from __future__ import annotations

import ast
import asyncio
import configparser
import doctest
import os
import re
import shlex
import subprocess
import sys
import types
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest

from tests.integration.docs.stage import Stage
from tests.support.pages import ALL, IS_RUN, PAGES, ROOT, Block, prose

PYTHON = sorted({block.page for block in ALL if block.language in ("python", "pycon") and not block.reason})
NOT_RUN = [block for block in ALL if block.reason]
#: Raise it only with a reason in the block's comment that no machine of ours can take away.
MOST_NOT_RUN = 21
INLINE = re.compile(r"`((?:faust-assigner|make) [^`\n]+)`")


def test_every_block_is_fenced_and_names_a_language_that_is_known() -> None:
    """An indented block, or a fence without a name, would be run by nobody."""
    unknown = [f"{block}: {block.language!r}" for block in ALL if block.language not in IS_RUN]
    indented = [f"{page.name}: {line}" for page in PAGES
                for line in re.findall(r"(?<=\n\n) {4}\S.*", prose(page))]
    assert not unknown, f"name one of {sorted(IS_RUN)}"
    assert not indented, "use a fence"


def test_text_blocks_hide_no_command() -> None:
    """What a reader would type stands in a block that is run, or says why it is not."""
    words = ("faust-assigner ", "faust ", "python ", "pip ", "make ", "spark-submit ", "$ ")
    hidden = [str(block) for block in ALL if not IS_RUN[block.language]
              for line in block.text.splitlines() if line.startswith(words) and "[--" not in line]
    assert not hidden


@pytest.mark.parametrize("page", PYTHON)
def test_python_blocks_run_in_order(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other in one namespace; where output is shown, it is what comes out."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    for block in ALL:
        if block.page == page and not block.reason:
            if block.language == "python":
                run_python(block, names)
            elif block.language == "pycon":
                compare_session(block, names)


def run_python(block: Block, names: dict[str, Any]) -> None:
    """Execute a block; ``async with`` may stand at the top."""
    code = compile(block.text, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    awaitable = types.FunctionType(code, names)()
    if awaitable is not None:
        asyncio.run(awaitable)


def compare_session(block: Block, names: dict[str, Any]) -> None:
    """A session of ``>>>`` is a doctest; ``...`` stands for anything."""
    test = doctest.DocTestParser().get_doctest(block.text, names, str(block), block.page, block.line)
    test.globs = names
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    said: list[str] = []
    result = runner.run(test, out=said.append, clear_globs=False)
    assert result.failed == 0, "".join(said)
    assert result.attempted


# What is not run --------------------------------------------------------------------------------------


def test_few_blocks_are_not_run_and_each_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    """The list is printed, so that it can be read."""
    with capsys.disabled():
        print(f"\n{len(NOT_RUN)} of {sum(IS_RUN[b.language] for b in ALL)} blocks are not run:")
        for block in NOT_RUN:
            print(f"  {block}: {block.reason}")
    assert len(NOT_RUN) <= MOST_NOT_RUN
    assert all(len(block.reason) > 15 for block in NOT_RUN)


@pytest.mark.parametrize("block", NOT_RUN, ids=str)
def test_what_is_not_run_names_commands_and_options_that_exist(block: Block) -> None:
    """Each command of the block, down to its options."""
    assert block.commands
    for command in block.commands:
        for part in command.split("&&"):
            check_command(shlex.split(part))


@pytest.mark.parametrize(("page", "command"), sorted({
    (page.relative_to(ROOT).as_posix(), command)
    for page in PAGES for command in INLINE.findall(prose(page))}))
def test_commands_in_running_text_exist(page: str, command: str) -> None:
    """``faust-assigner …`` and ``make …`` between backticks."""
    check_command(shlex.split(command))


@pytest.mark.parametrize(("page", "command"), [
    (page.relative_to(ROOT).as_posix(), command)
    for page in PAGES for command in INLINE.findall(prose(page))
    if re.match(r"faust-assigner ((groups \w+|why|deploy-check) [^-]|.*--group\b)", command)])
def test_commands_about_a_group_name_its_brokers(page: str, command: str) -> None:
    """Copied from the page, they run: the page has ``--bootstrap``, or the variable that stands for it."""
    variable = "FAUST_ASSIGNER_KAFKA_BOOTSTRAP_SERVERS"
    assert {"--bootstrap", "--ledger"} & set(shlex.split(command)) or variable in (ROOT / page).read_text()


def check_command(words: list[str]) -> None:
    """AssertionError when a word of the command is none that its program knows."""
    if words[0] == "faust-assigner":
        check_click(words[1:])
    elif words[0] == "make":
        check_make([word for word in words[1:] if "=" not in word])
    elif words[0] == "spark-submit":
        check_spark_submit(words[1:])
    elif words[0].endswith("pip"):
        assert words[1] == "install"
        check_extras(" ".join(words))
    elif words[0] in ("cp", "curl", "docker", "kubectl", "systemctl"):
        named = [word for word in words if word.startswith("examples/")]
        assert all((ROOT / name).exists() for name in named), words
    else:
        assert words[0] in ("python", "pipeline/bin/venv-pack"), words


def check_make(targets: list[str]) -> None:
    """Targets of the Makefile."""
    known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert targets
    assert set(targets) <= known


def check_click(words: list[str]) -> None:
    """A command of ours and its options; metavars may stand for values."""
    from faust_assigner.cli.commands import main

    command: click.Command = main
    context = click.Context(command)
    rest = iter(words)
    for word in rest:
        known = {name: parameter for parameter in command.get_params(context) for name in parameter.opts}
        option, equals, _ = word.partition("=")
        if word.startswith("-"):
            assert option in known, f"{command.name} {word}"
            if not equals and not getattr(known[option], "is_flag", False):
                next(rest, None)
        elif isinstance(command, click.Group):
            found = command.get_command(context, word)
            assert found is not None, f"faust-assigner {word}"
            command, context = found, click.Context(found, parent=context)


@cache
def spark_options() -> set[str]:
    """What ``spark-submit`` knows."""
    binaries = Path(sys.executable).parent  # its script looks for a python that has pyspark
    listed = subprocess.run([binaries / "spark-submit", "--help"], capture_output=True, text=True, timeout=60,
                            env={**os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"})
    return set(re.findall(r"--[a-z-]+", listed.stdout + listed.stderr))


def check_spark_submit(words: list[str]) -> None:
    """Spark's options before the job's file, the job's own behind it."""
    at = next(i for i, word in enumerate(words) if word.endswith("jobs.py"))
    assert {word for word in words[:at] if word.startswith("--")} <= spark_options()
    assert words[at].endswith("faust_assigner/cli/jobs.py")
    check_click(words[at + 1:])


def check_extras(text: str) -> None:
    """``faust-assigner[EXTRA]`` names extras of setup.cfg."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    for extras in re.findall(r"faust-assigner\[([^]]*)\]", text):
        assert set(extras.split(",")) <= set(settings["options.extras_require"])
    assert "faust-assigner" in text


def test_what_stands_for_a_name_is_not_searched_for_other_names(tmp_path: Path) -> None:
    """A port of this machine may hold the digits of a count that stands for another."""
    stage = Stage(tmp_path, stands_for={"kafka:9092": "127.0.0.1:35007", "500": "8", "10000": "12"})
    assert stage.local("faust-assigner simulate --bootstrap kafka:9092 --scenarios 500 --seed 15001") == (
        "faust-assigner simulate --bootstrap 127.0.0.1:35007 --scenarios 8 --seed 15001")
