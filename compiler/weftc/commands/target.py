"""SPEC or MODEL as the user wrote it -> a checked spec, or a checkpoint with the spec it carries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from weftc.commands.options import Settings, UsageError, definitions, split_definitions, told
from weftc.commands.progress import progress
from weftc.core.errors import InputError
from weftc.core.source import Source, printable
from weftc.core.types import Checked
from weftc.files.locate import find_model, find_spec, is_model
from weftc.language.check.check import check
from weftc.language.parse.parse import parse

if TYPE_CHECKING:
    from weftc_runtime.format.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class Target:
    """What a command works on. `checkpoint` is None until a spec is compiled."""

    checked: Checked
    checkpoint: Checkpoint | None = None

    @property
    def name(self) -> str:
        return self.checked.spec.name


def spec_of(text: str) -> Source:
    """The text of a built-in spec or of a file."""
    try:
        return find_spec(text)
    except InputError as error:
        raise UsageError(told(error)) from None


def open_spec(text: str) -> Checked:
    """A built-in spec or the spec in a file, checked."""
    return check(parse(spec_of(text)))


def open_target(text: str) -> Target:
    """A spec, or a model with the spec in it."""
    if not is_model(text):
        return Target(open_spec(text))
    try:
        path = find_model(text)
    except InputError as error:
        raise UsageError(told(error)) from None
    from weftc_runtime.format.checkpoint import Checkpoint

    with progress(f"reading {path.name}"):
        checkpoint = Checkpoint.load(path)
    return Target(check(parse(Source(checkpoint.spec_name, checkpoint.spec_text))), checkpoint)


def compile_target(target: Target, settings: Settings, heads: str = "any") -> Checkpoint:
    """The checkpoint of a target: the model's own, or the compiled spec."""
    if target.checkpoint is not None:
        return target.checkpoint
    from weftc.compiling import compile

    try:
        with progress(f"compiling {target.name}"):
            return compile(
                target.checked,
                dims=settings.dims,
                params=settings.params,
                layers=settings.layers,
                heads=heads,  # type: ignore[arg-type]
                **settings.styles,
            )
    except InputError as error:  # dimensions and parameters are all that is left to be wrong, and they are typed
        raise UsageError(told(error)) from None


def refuse_changes(target: Target, words: list[str], styles: dict[str, str]) -> None:
    """A model is what it was compiled to be: dimensions, parameters and styles may be repeated, not changed."""
    assert target.checkpoint is not None
    fixed = {**target.checkpoint.dims, **target.checkpoint.params}
    dims, params = split_definitions(
        definitions(words), target.name, tuple(target.checked.dims), tuple(target.checked.params)
    )
    for name, value in {**dims, **params}.items():
        if name in fixed and fixed[name] != value:
            raise UsageError(
                f"-D {printable(name)}={value:g}: this model was compiled with {printable(name)} = {fixed[name]}; "
                "compile the spec anew to change it"
            )
    if styles:
        raise UsageError(f"--{next(iter(styles))} is chosen when a spec is compiled; this is a model already")
