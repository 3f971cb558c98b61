"""Model files that were changed and sealed again: whatever loads can predict."""

from __future__ import annotations

import pytest
from tests.unit.registry_fuzz import FITS, try_files


@pytest.mark.parametrize("name", FITS)
def test_whatever_loads_can_predict(name, tmp_path):
    assert not try_files(name, 30, 1, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", FITS)
def test_whatever_of_thousands_loads_can_predict(name, tmp_path):
    assert not try_files(name, 2000, 2, tmp_path)
