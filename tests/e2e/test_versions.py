"""The wheel in clean environments: without extras, with the lowest versions, on other Pythons."""

from __future__ import annotations

from pathlib import Path

import pytest
import versions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return versions.build(tmp_path_factory.mktemp("wheel"))


@pytest.mark.parametrize("name", versions.ENVIRONMENTS)
def test_the_wheel_works(name: str, wheel: Path, tmp_path: Path) -> None:
    environment = versions.ENVIRONMENTS[name]
    if versions.interpreter(environment.python) is None:
        pytest.skip(f"Python {environment.python} is not installed")
    versions.try_out(environment, wheel, tmp_path)
