"""The trusted kernel of the prover: terms, and the rules by which they may be rewritten.

    rules         every rule with its condition, and the notes of its applications
    polynomials   sums of products of numbered atoms: plain arithmetic
    terms         what atoms stand for, and what is known of their signs
    products      products and quotients           functions     exp, log, roots, comparisons, zeros
    weightings    sums over tokens, weightings     equality      whether two terms are equal, by cases

What is chosen along the way (factors, shifts, scales) comes from an `Oracle` and is checked, not believed.
"""

from weftc.prover.kernel.equality import chooses_itself, covers, equal, selected
from weftc.prover.kernel.rules import RULES, Application, Factors, NotAnInstance, Oracle, Rule, Unproved
from weftc.prover.kernel.terms import ChoiceTerm, WeighingTerm
from weftc.prover.kernel.weightings import ONE, Candidates, Kernel, Keys

__all__ = [
    "ONE",
    "RULES",
    "Application",
    "Candidates",
    "ChoiceTerm",
    "Factors",
    "Kernel",
    "Keys",
    "NotAnInstance",
    "Oracle",
    "Rule",
    "Unproved",
    "WeighingTerm",
    "chooses_itself",
    "covers",
    "equal",
    "selected",
]
