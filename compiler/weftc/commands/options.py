"""What several commands ask for: dimensions and parameters (-D), lowering styles, data files, JSON.

Declares the shared arguments and turns them into values; a mistake is a `UsageError` that says how to write it.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from weftc.core.errors import InputError
from weftc.core.source import printable
from weftc.core.styles import CHOICES, Styles
from weftc.core.types import Checked
from weftc.core.words import did_you_mean

# What --help says about each lowering style; `weftc.styles` has the styles themselves.
STYLE_HELP = {
    "scores": "distance attention, or dot products on lifted embeddings",
    "centre": "whether distances are shifted by the mean of the data before they are expanded into dot products",
    "hardmax": "a choice of one as an argmax, or as a sharp softmax (see --sharpness); erasing heads stay choices",
    "erase": "whether slots are cleared linearly or by self-attention, as the papers print it (needs distinct tokens)",
    "members": "whether `where y[i,j]` is a mask, or an offset in the weights that keeps foreign tokens out",
    "null": "a null key of the query's own, or a null token among the keys (needs --scores dot)",
    "square": "whether feed-forwards square by a product or by squared ReLU",
    "norm": "whether unit(v) is an RMSNorm or a LayerNorm",
    "weights": "one set for every layer, or each layer its own (which fixes the number of layers)",
}
LARGEST_DIMENSION = 10**9
IN_PYTHON = re.compile(r"(?:dims|params)=\{([^{}]*)\}")
ENTRY = re.compile(r"'([^']*)': ([^,]+)")


class UsageError(InputError):
    """Something on the command line itself is wrong."""


def told(error: Exception) -> str:
    """What an error says on the command line: `dims={'k': 5}`, as Python has it, is `-D k=5` here."""
    return IN_PYTHON.sub(lambda found: " ".join(f"-D {n}={v}" for n, v in ENTRY.findall(found[1])), str(error))


@dataclass(frozen=True, slots=True)
class Settings:
    """How a spec is to become a model."""

    dims: Mapping[str, int] = field(default_factory=dict)
    params: Mapping[str, float] = field(default_factory=dict)
    layers: int | None = None
    styles: Mapping[str, Any] = field(default_factory=dict)
    colour: bool = False


# ---- arguments -------------------------------------------------------------------------------------------------------


def add_definitions(parser: argparse.ArgumentParser) -> None:
    """`-D name=value`, for dimensions and parameters alike."""
    parser.add_argument(
        "-D",
        dest="definitions",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set a dimension or a parameter of the spec, as in -D k=5; may be repeated",
    )


def add_styles(parser: argparse.ArgumentParser) -> None:
    """One option per lowering style."""
    group = parser.add_argument_group("lowering styles", "transformers that look different and compute the same")
    for name, values in CHOICES.items():
        text = f"{STYLE_HELP.get(name, '')} (default {getattr(Styles(), name)})".strip()
        group.add_argument(f"--{name}", choices=values, default=None, help=text)
    group.add_argument(
        "--sharpness",
        type=sharpness,
        metavar="G|auto",
        help="what --hardmax softmax multiplies scores by (default auto: enough for scores that lead by 0.001)",
    )


def add_data(parser: argparse.ArgumentParser) -> None:
    """Data files and how to read them."""
    group = parser.add_argument_group(
        "data",
        "files of numbers, one row per token: CSV, TSV, .npy, .npz, Parquet, Arrow, Feather, Zarr; .gz, .zst, .bz2, "
        ".xz; or a folder of such files, or a quoted pattern (parts/*.parquet)",
    )
    group.add_argument(
        "--data",
        action="append",
        default=[],
        metavar="[NAME=]FILE",
        help="data for the input NAME, or for the first open one (then --data itself may be left out); - is standard "
        "input; may be repeated",
    )
    group.add_argument(
        "--init",
        action="append",
        default=[],
        metavar="[NAME=]FILE|WAY",
        help="start values for an input that has an `init` clause, or another way to start than that clause says: "
        "spread, spectral, random or first",
    )
    group.add_argument(
        "--columns",
        action="append",
        default=[],
        metavar="[NAME=]A,B",
        help="the columns to use, by name or by position counted from 1 (default: all)",
    )
    group.add_argument(
        "--id",
        action="append",
        default=[],
        metavar="[NAME=]COLUMN",
        help="a column that names the rows: it is not used as data, and results repeat it",
    )
    group.add_argument(
        "--header",
        choices=("auto", "yes", "no"),
        default="auto",
        help="whether the first line of a text file names the columns (default: decided from its contents)",
    )
    group.add_argument(
        "--decimal",
        choices=("auto", "point", "comma"),
        default="auto",
        help="how a text file writes 1.5 (default: decided from its contents)",
    )
    group.add_argument(
        "--missing",
        choices=("error", "drop", "mean"),
        default="error",
        help="what to do about missing values: stop, leave the row out, or use the mean of the column (default error)",
    )
    group.add_argument(
        "--standardize",
        action="store_true",
        help="shift and scale every column of vectors to mean 0 and standard deviation 1; start values follow",
    )
    group.add_argument(
        "--unit", action="store_true", help="divide every row by its length, for inputs declared as unit vectors"
    )


def add_backend(parser: argparse.ArgumentParser) -> None:
    """`--backend`."""
    parser.add_argument(
        "--backend",
        type=lambda name: "planned" if name == "linear" else name,  # its former name
        choices=("auto", "reference", "planned"),
        default="auto",
        help="run the matrices as they stand, by a plan for large inputs, or whichever suits the data (default auto)",
    )


def add_force(parser: argparse.ArgumentParser, what: str) -> None:
    """`--force`."""
    parser.add_argument("--force", action="store_true", help=f"replace an existing {what}")


def add_json(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object for machines instead of text")


def positive(text: str) -> int:
    """An argument that counts something: 1, 2, ..."""
    if not re.fullmatch(r"[0-9]{1,12}", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{printable(text)}' is not a whole number from 1")
    return int(text)


def sharpness(text: str) -> float | str:
    """A number above 0, or auto."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if text != "auto" and not (isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"'{printable(text)}' is not a number above 0, nor auto")
    return text if text == "auto" else value


def natural(text: str) -> int:
    """An argument that is 0, 1, 2, ..."""
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise argparse.ArgumentTypeError(f"'{printable(text)}' is not a whole number from 0")
    return int(text)


# ---- values ----------------------------------------------------------------------------------------------------------


def styles(options: argparse.Namespace) -> dict[str, Any]:
    """The styles the user chose; those left out are left to the compiler."""
    chosen = {name: getattr(options, name, None) for name in (*CHOICES, "sharpness")}
    return {name: value for name, value in chosen.items() if value is not None}


def definitions(words: Sequence[str]) -> dict[str, str]:
    """`["k=5", "tau=90"]` -> names and values as written; a name may appear once."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = (part.strip() for part in word.partition("="))
        if not (name and equals and value):
            raise UsageError(f"-D {printable(word)}: write a name and a value, as in -D k=5")
        if name in found:
            raise UsageError(f"-D {printable(name)} is given twice ({printable(found[name])} and {printable(value)})")
        found[name] = value
    return found


def settings(options: argparse.Namespace, checked: Checked) -> Settings:
    """The settings for a spec: each definition becomes a dimension or a parameter of it."""
    given = definitions(options.definitions)
    dims, params = split_definitions(given, checked.spec.name, checked.dims, tuple(checked.params))
    return Settings(dims, params, getattr(options, "layers", None), styles(options))


def split_definitions(
    given: Mapping[str, str], name: str, dims: Collection[str], params: Collection[str]
) -> tuple[dict[str, int], dict[str, float]]:
    """Definitions as numbers: whole ones for dimensions, any for parameters."""
    unknown = [word for word in given if word not in dims and word not in params]
    if unknown:
        raise UsageError(_unknown(unknown[0], name, dims, params))
    return (
        {word: dimension(word, value) for word, value in given.items() if word in dims},
        {word: number(word, value) for word, value in given.items() if word not in dims},
    )


def _unknown(word: str, name: str, dims: Collection[str], params: Collection[str]) -> str:
    hint = did_you_mean(word, [*dims, *params])
    listed = [f"dimensions {', '.join(dims)}"] if dims else []
    listed += [f"parameters {', '.join(params)}"] if params else []
    known = f"it has {' and '.join(listed)}" if listed else "it has none"
    return f"-D {printable(word)}: {printable(name)} has no dimension or parameter of that name; {hint or known}"


def dimension(name: str, text: str) -> int:
    """A dimension: a whole number from 1."""
    if not re.fullmatch(r"\+?[0-9]{1,12}", text) or not 1 <= int(text) <= LARGEST_DIMENSION:
        raise UsageError(f"-D {printable(name)}={printable(text)}: a dimension is a whole number from 1")
    return int(text)


def number(name: str, text: str) -> float:
    """A parameter: a decimal number, or a fraction such as 1/3."""
    top, slash, bottom = text.partition("/")
    try:
        value = float(top) / float(bottom) if slash else float(text)
    except (ValueError, ZeroDivisionError):
        value = float("nan")
    if not isfinite(value) or "_" in text:
        raise UsageError(f"-D {printable(name)}={printable(text)}: a parameter is a number such as 0.5 or 1/3")
    return value
