"""Whatever is fed to the front end, the answer is a spec or a clear error: never another exception."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spec_texts import GOOD
from weft.errors import WeftError
from weft.language.check import check
from weft.language.parse import parse, read_spec
from weft.source import Source

TEXTS = [path.read_text(encoding="utf-8") for path in GOOD]
WORDS = sorted({word for text in TEXTS for word in re.findall(r"\w+|\S", text)})
STRANGE = st.sampled_from("\0\7\t\r\n\"'()[]|<>=~%^λ−²\u202e\ufeff\U0001f600")
BOUNDED = settings(
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def front_end(text: str) -> None:
    try:
        check(parse(Source("fuzz", text)))
    except WeftError as error:
        shown = str(error)
        assert shown
        assert all(character.isprintable() or character == "\n" for character in shown)


@settings(BOUNDED, max_examples=150)
@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    front_end(text)
    front_end("algorithm a\ntokens i in p\ninputs x[i] : R\nlayer\n  x[i] = " + text)


@settings(BOUNDED, max_examples=100)
@given(st.lists(st.sampled_from(WORDS), max_size=40))
def test_any_words(words: list[str]) -> None:
    front_end("algorithm a " + " ".join(words))


@settings(BOUNDED, max_examples=60)
@given(data=st.binary(max_size=120))
def test_any_bytes(data: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "fuzz.weft"
        path.write_bytes(data)
        try:
            source = read_spec(path)
        except WeftError:
            return
        front_end(source.text)


@st.composite
def mutations(draw: st.DrawFn) -> str:
    """A good spec with a few pieces removed, repeated, replaced or moved."""
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 5))):
        pieces = re.findall(r"\w+|\s+|\S", text)
        if not pieces:
            break
        at = draw(st.integers(0, len(pieces) - 1))
        match draw(st.sampled_from(("drop", "word", "strange", "repeat", "swap"))):
            case "drop":
                del pieces[at : at + draw(st.integers(1, 4))]
            case "word":
                pieces[at] = draw(st.sampled_from(WORDS))
            case "strange":
                pieces.insert(at, draw(STRANGE))
            case "repeat":
                pieces[at:at] = pieces[at : at + 4] * draw(st.integers(1, 20))
            case _:
                other = draw(st.integers(0, len(pieces) - 1))
                pieces[at], pieces[other] = pieces[other], pieces[at]
        text = "".join(pieces)
    return text


@settings(BOUNDED, max_examples=400)
@given(mutations())
def test_mutations_of_good_specs(text: str) -> None:
    front_end(text)
