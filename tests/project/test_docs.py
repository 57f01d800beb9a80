"""docs/ tells the truth: pages play as they are written, tables are what the compiler does now, links lead somewhere.

`make docs` writes the tables and the quotations anew.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest

from pages import ROOT, anchors, blocks_of, links, marked, remarked, rewrite
from playing import Play
from weftc.compiling import compile
from weftc.core.errors import SpecError
from weftc.core.source import Source
from weftc.core.styles import CHOICES, Styles
from weftc.language.check.check import check
from weftc.language.parse.grammar import grammar_text, load
from weftc.language.parse.parse import parse
from weftc.show.style_effects import table
from weftc.tools.doc_tables.codes import ELLIPSIS, codes
from weftc.tools.doc_tables.costs import changes, costs, sequences
from weftc.tools.doc_tables.ebnf import productions
from weftc.tools.doc_tables.signatures import described, public
from weftc.tools.doc_tables.sites import sites
from weftc.tools.doc_tables.tables import TABLES
from weftc.tools.doc_tables.traffic import traffic

DOCS = ROOT / "docs"
PLAYED = (
    "tutorial",
    "export",
    "disguise",
    "hooks",
    "circuits",
    "training",
    "language",
    "constructions",
    "exactness",
    "exactness-in-detail",
    "runtime",
    "extending",
    "comparison",
    "corrections",
    "python",
)
PEOPLE = tuple(sorted(f"for/{path.stem}" for path in (DOCS / "for").glob("*.md")))
GENERATED = (
    "styles",
    "language",
    "errors",
    "python",
    "hooks",
    "comparison",
    "costs",
    pytest.param("scale", marks=pytest.mark.slow),
)
TESTS = ROOT / "tests"


def text_of(page: str) -> str:
    return (DOCS / f"{page}.md").read_text(encoding="utf-8")


# ---- pages as a whole ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [*PLAYED, *PEOPLE])
def test_a_page_plays_as_it_is_written(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Commands and Python, from top to bottom, in one folder."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    play = Play(text_of(page))
    play.run()
    if request.config.getoption("--update-golden"):
        rewrite(DOCS / f"{page}.md", play.text)
        return
    if play.faults:
        pytest.fail("run `make docs` and read what changed\n\n" + "\n\n".join(play.faults), pytrace=False)


def pieces() -> list[tuple[str, str]]:
    """Blocks of the language that are no files, with the frame of their page."""
    found = []
    for path in sorted(DOCS.glob("*.md")):
        blocks = [block for block in blocks_of(path.read_text(encoding="utf-8")) if block.language == "weftc"]
        frame = next((block.text for block in blocks if "# ..." in block.text), "")
        found += [(whole(block.text, frame), block.text) for block in blocks if not block.file]
    return found


def whole(block: str, frame: str) -> str:
    """A block as a spec: itself, or the frame with its equations at the dots and its sections at the end."""
    if re.match(r"(#.*\n)*algorithm ", block):
        return block
    assert frame, f"a page with pieces of specs shows the frame they belong to: {block}"
    section = re.search(r"^(tokens|inputs|random|state|param|let|repeat|outputs|objective|example)\b", block, re.M)
    start = section.start() if section else len(block)
    dots = next(line for line in frame.splitlines(keepends=True) if "# ..." in line)
    return frame.replace(dots, block[:start] or dots) + block[start:]


@pytest.mark.parametrize(
    ("spec", "shown"), [pytest.param(*pair, id=" ".join(pair[1].split())[:30]) for pair in pieces()]
)
def test_blocks_of_the_language_compile(spec: str, shown: str) -> None:
    checked = check(parse(Source("page", spec)))
    dims = {name: 2 + at for at, name in enumerate(checked.dims)}
    params = {name: 1.0 for name, param in checked.params.items() if param.default is None}
    assert compile(checked, dims, params).program.name == checked.spec.name


def test_pages_link_to_what_exists() -> None:
    pages = [*DOCS.glob("*.md"), ROOT / "README.md", ROOT / "specs" / "README.md"]
    for page in pages:
        for target in links(page.read_text(encoding="utf-8")):
            path, _, anchor = target.partition("#")
            there = (page.parent / path).resolve() if path else page
            assert there.exists(), f"{page.name}: {target}"
            if anchor:
                assert anchor in anchors(there.read_text(encoding="utf-8")), f"{page.name}: {target}"


def test_the_index_names_every_page() -> None:
    named = {target.partition("#")[0] for target in links((DOCS / "README.md").read_text(encoding="utf-8"))}
    assert {path.name for path in DOCS.glob("*.md")} - {"README.md"} <= named


def test_files_and_names_that_pages_mention_exist() -> None:
    """`passes/sums.py` is a file of the compiler, the runtime or the project; `...py:Styles` is defined in it."""
    places = (ROOT / "compiler" / "weftc", ROOT / "runtime" / "weftc_runtime", ROOT / "runtime", ROOT)
    seen = 0
    for page in DOCS.glob("*.md"):
        for name, inside in re.findall(r"`([\w./]+\.(?:py|lark))(?::([\w.]+))?`", page.read_text(encoding="utf-8")):
            found = [place / name for place in places if (place / name).exists()]
            assert found, f"{page.name}: there is no {name}"
            *outer, last = inside.split(".") if inside else ("",)
            for word in (*outer, last) if inside else ():
                defined = re.compile(rf"^\s*(?:class|def) {word}\b|^\s*{word}\b[^\n]*[=:]", re.M)
                assert defined.search(found[0].read_text(encoding="utf-8")), f"{page.name}: {name} has no {word}"
            seen += 1
    assert seen > 20


# ---- tables and signatures -------------------------------------------------------------------------------------------


def generated(name: str) -> str:
    """What belongs between two marks."""
    if name == "effects":
        return table()
    if name in ("costs", "sequences", "changes"):
        record, first = (
            json.loads((TESTS / "golden" / f"{n}.json").read_text()) for n in ("costs", "costs_first_edition")
        )
        tables = {"costs": costs(record), "sequences": sequences(record), "changes": changes(record, first)}
        return tables[name]
    if name == "messages":
        return messages()
    if name == "sites":
        return sites()
    if name == "traffic":
        return traffic()
    if name in TABLES:
        return TABLES[name]()
    return described(name, public()[name])


@pytest.mark.parametrize("page", GENERATED)
def test_what_is_generated_is_up_to_date(page: str, request: pytest.FixtureRequest) -> None:
    text = text_of(page)
    fresh = {name: f"\n{generated(name)}\n\n" for name in marked(text)}
    assert fresh
    if request.config.getoption("--update-golden"):
        rewrite(DOCS / f"{page}.md", remarked(text, fresh))
        return
    assert marked(text) == fresh, f"docs/{page}.md is out of date; run `make docs` and read what changed"


def test_the_grammar_on_the_page_is_the_grammar() -> None:
    """Every rule, word and sign of grammar.lark, and nothing of its machinery."""
    lark = re.sub(r"\s//.*|^//.*", "", grammar_text(), flags=re.M)
    rules = set(re.findall(r"^[?!]*_?([a-z]\w*):", lark, re.M))
    shown = {production.name: production.alternatives for production in productions()}
    assert {name for name in shown if name.islower()} == rules
    for sign in load().terminals:
        assert any(f'"{sign}"' in alternative for found in shown.values() for alternative in found), sign
    assert shown["tokenset"] == ('NAME {"," NAME} "in" NAME [":" dim]',)
    assert shown["condition"] == ('chain [(">" | ">=" | "<" | "<=" | "=" | "!=") chain]',)
    used = set(
        re.findall(
            r"[a-z]\w+(?![\w\"])", re.sub(r'"[^"]*"', "", " ".join(a for found in shown.values() for a in found))
        )
    )
    assert used <= set(shown)


def test_every_table_is_on_the_page() -> None:
    assert set(marked(text_of("language"))) == set(TABLES)


def test_every_public_name_is_documented() -> None:
    text = text_of("python")
    missing = set(public()) - set(marked(text))
    assert not missing, (
        f"docs/python.md lacks {sorted(missing)}: give each a heading, marks as the others have, an example"
    )
    for name in public():
        short = name.rpartition(".")[2]
        code = "".join(block.text for block in blocks_of(text) if block.language in ("python", "pycon"))
        assert re.search(rf"\b{short}\b", code), f"no example on docs/python.md uses {name}"


# ---- error messages --------------------------------------------------------------------------------------------------


@cache
def real() -> dict[str, tuple[str, ...]]:
    """For every code, messages of the tests about faulty specs, shortest first, no two of which begin alike."""
    found: dict[str, dict[str, str]] = {}
    for path in sorted([*TESTS.glob("diagnostics/*.txt"), *TESTS.glob("refusals/*.txt")]):
        for block in path.read_text(encoding="utf-8").strip().split("\n\n"):
            code = re.match(r"error\[(\w+)\]: .*", block)
            assert code, path
            kept = found.setdefault(code[1], {})
            kept[code[0]] = min(kept.get(code[0], block), block, key=len)
    return {code: tuple(sorted(blocks.values(), key=len)) for code, blocks in found.items()}


def messages() -> str:
    """Every code with what it says, and messages as they are printed: one, and of refusals all there are."""
    out = []
    for code, said in codes().items():
        out += [f"### {code}", "", *(f"- {message}" for message in said), ""]
        for block in real().get(code, ())[: None if code.startswith("L") else 1]:
            out += ["```text", block, "```", ""]
    return "\n".join(out).strip()


def test_what_explain_prints_is_up_to_date(request: pytest.FixtureRequest) -> None:
    path = ROOT / "compiler" / "weftc" / "commands" / "explanations.md"
    fresh = f"{messages()}\n"
    if request.config.getoption("--update-golden"):
        rewrite(path, fresh)
        return
    assert path.read_text(encoding="utf-8") == fresh, "run `make docs` and read what changed"


def test_messages_are_what_the_source_says() -> None:
    """The messages of the tests have the form that the generator read from the source."""
    for code, blocks in real().items():
        forms = [".*".join(map(re.escape, message.split(ELLIPSIS))) for message in codes()[code]]
        for block in blocks:
            said = re.match(r"error\[\w+\]: (.*)", block)
            assert said
            assert any(re.fullmatch(form, said[1]) for form in forms), (said[0], codes()[code])


def test_nearly_every_code_has_a_real_message() -> None:
    assert set(codes()) >= set(real())
    assert len(set(codes()) - set(real())) <= 10


def test_a_code_of_the_table_is_one_the_checker_gives() -> None:
    with pytest.raises(SpecError) as caught:
        check(
            parse(
                Source("page", "algorithm a\ntokens i in points\ninputs x[i] : R\nlayer\n  x[i] = 1 / 0\noutputs x\n")
            )
        )
    (found,) = caught.value.diagnostics
    assert found.message in codes()[found.code]


# ---- styles ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", CHOICES)
def test_every_style_is_described(style: str) -> None:
    (paragraph,) = re.findall(rf"^\*\*{style}\*\* (.*?)\n\n", text_of("styles"), re.S | re.M)
    opening = paragraph.partition(".")[0]
    assert re.findall(r"`(\w+)`", opening) == list(CHOICES[style])
    assert f"`{getattr(Styles(), style)}` (default)" in opening
