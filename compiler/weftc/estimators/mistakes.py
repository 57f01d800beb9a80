"""Mistakes of a user as scikit-learn expects them: `ValueError`s, with Weft's text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from weftc.core.errors import InputError
from weftc_runtime.errors import WeftRuntimeError


class EstimatorError(InputError, ValueError):
    """Data, parameters or a spec that an estimator cannot work with."""


@contextmanager
def as_value_errors() -> Iterator[None]:
    """What Weft says about data and parameters, as a `ValueError`. Mistakes in a spec stay what they are."""
    try:
        yield
    except EstimatorError:
        raise
    except (InputError, WeftRuntimeError) as error:
        raise EstimatorError(str(error)) from None
