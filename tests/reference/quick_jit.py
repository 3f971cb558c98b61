"""``jax.jit`` for programs that a test runs a few times: compiling takes a third of the time.

What is compared is the formula, which does not depend on how well its program is optimised.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax

QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
quick_jit: Callable[..., Any] = partial(jax.jit, compiler_options=QUICK)
