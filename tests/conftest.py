"""What holds for every test run."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# A deadline fails a test because the machine was busy, and a random draw fails it for somebody else's change.
# EXPLORE=1 draws other examples each time: to look for what nobody has found yet.
settings.register_profile("steady", deadline=None, derandomize=os.environ.get("EXPLORE") != "1")
settings.load_profile("steady")


def unproven(reporter: pytest.TerminalReporter) -> int:
    """How many skips fail the run: with REQUIRE_ALL=1 all, because a test that did not run has shown nothing."""
    return len(reporter.stats.get("skipped", ())) if os.environ.get("REQUIRE_ALL") == "1" else 0


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if isinstance(reporter, pytest.TerminalReporter) and unproven(reporter):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if count := unproven(terminalreporter):
        terminalreporter.section(f"FAILED: REQUIRE_ALL=1, and these {count} skips leave something unproven", red=True)
