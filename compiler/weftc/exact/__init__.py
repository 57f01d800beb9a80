"""An executor of compiled programs in exact rational arithmetic: the judge of everything that claims to run them.

    >>> from weftc.exact import execute
    >>> run = execute(checkpoint, {"x": [[0], [3]], "c": [[0], [5]]}, layers=1)
    >>> run.fields["c"], run.outputs(), run.final(), run.objective()

It is written from the description of the format (the docstring of `weftc_runtime.format.program`) and shares no code
with the runtime, the interpreter or the prover.
"""

from weftc.exact.executor import Execution, Executor, NoValue, execute
from weftc.exact.numbers import Number, Undecided, exact

__all__ = ["Execution", "Executor", "NoValue", "Number", "Undecided", "exact", "execute"]
