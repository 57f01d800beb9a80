"""Translation validation: a checkpoint -> a proof, for all inputs, that its matrices compute the equations of its spec.

    prove(checkpoint)   -> Proof: verdict, every equation with its strength, invariants, assumptions

Shares nothing with the compiler but syntax and types. Digests, bytes and fresh compilations play no part: the numbers
in the file are executed symbolically, in exact rational arithmetic.
"""

from __future__ import annotations

from weftc.prover.proving import prove
from weftc.prover.report.report import Deviation, Proof, ProvedEquation

__all__ = ["Deviation", "Proof", "ProvedEquation", "prove"]
