"""Java libraries for tests that compare with the original Java code."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tools import maven


def classpath(artifacts: Sequence[str]) -> str:
    """A class path with these `group:artifact:version` and their dependencies. Skips the test where Java is missing."""
    try:
        return maven.classpath(artifacts)
    except maven.JavaMissing as missing:
        pytest.skip(str(missing))
    except maven.NotFetched as error:
        pytest.fail(f"Maven could not fetch the libraries:\n{error}", pytrace=False)
