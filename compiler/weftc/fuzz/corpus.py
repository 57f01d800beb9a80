"""Trials as files: JSON with the text of the spec and every number, so that a found case can be replayed anywhere."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from weftc.compiling import checked_spec
from weftc.core.errors import InputError
from weftc.core.source import Source, printable
from weftc.fuzz.trials import Trial, TrialFailure
from weftc.verification.cases.inputs import Case
from weftc.verification.cases.shrinking import written

FORMAT = 1


def saved(trial: Trial, failure: TrialFailure, folder: Path) -> Path:
    """Writes a trial into a folder, named by what it holds."""
    kept = {
        "format": FORMAT,
        "found": f"{failure.kind}, {failure.where}: {failure.told}".splitlines()[0],
        "spec": trial.text,
        "dims": dict(trial.dims),
        "styles": dict(trial.styles),
        "dtype": trial.dtype,
        "backend": trial.backend,
        "case": {
            "family": trial.case.family,
            "layers": trial.case.layers,
            "seed": trial.case.seed,
            "inputs": {name: np.asarray(values, np.float64).tolist() for name, values in trial.case.inputs.items()},
            "noise": {name: np.asarray(values, np.float64).tolist() for name, values in trial.case.noise.items()},
        },
    }
    text = json.dumps(kept, indent=1)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{failure.kind}-{hashlib.sha256(text.encode()).hexdigest()[:10]}.json"
    path.write_text(text + "\n", encoding="utf-8")
    return path


def loaded(path: Path) -> Trial:
    """The trial in a file."""
    shown = printable(str(path))
    try:
        kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        case, dtype = kept["case"], np.dtype(kept["dtype"])
        inputs = {name: np.asarray(values, dtype) for name, values in case["inputs"].items()}
        noise = {name: np.asarray(values, dtype) for name, values in case["noise"].items()}
        known = Case(case["family"], inputs, case["layers"], case["seed"], noise)
        checked = checked_spec(Source(path.name, kept["spec"]))
        return Trial(checked, kept["dims"], kept["styles"], kept["dtype"], known, kept["backend"])
    except FileNotFoundError:
        raise InputError(f"there is no file {shown}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{shown} is not a saved trial ({type(error).__name__}: {error})") from None


def report(trial: Trial, failure: TrialFailure) -> str:
    """A failure as people read it: what happened, the spec, how it was compiled, the inputs."""
    chosen = ", ".join(f"{name}={value}" for name, value in trial.styles.items()) or "the default style"
    sizes = ", ".join(f"{name} = {value}" for name, value in trial.dims.items())
    case = trial.case
    head = f"{failure.kind}, {failure.where}: {failure.told}"
    how = f"{chosen}; {trial.backend} backend, {trial.dtype}; {sizes}; {case.layers} layers, seed {case.seed}"
    return f"{head}\n\n{trial.text}\n{how}; family: {case.family}\n{written(case)}"
