"""Everything a report tells -> one HTML file: template, style, script and data in it, nothing loaded from elsewhere.

The template escapes whatever it is given. The content security policy allows the style and the script of this page, by
their digests, and nothing else: no image, no connection, no other script.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from weftc.show.page.payload import script_json

LARGEST = 5_000_000  # bytes of a page


@cache
def _asset(name: str) -> str:
    """A file of this package."""
    return files("weftc.show.page").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def policy() -> str:
    """The content security policy of a page."""
    rules = {
        "default-src": "'none'",
        "style-src": f"'{_digest(_asset('page.css'))}'",
        "script-src": f"'{_digest(_asset('page.js'))}'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def render(context: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """The page."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    template = environment.from_string(_asset("page.html.jinja"))
    return template.render(
        **context,
        policy=policy(),
        style=Markup(_asset("page.css")),  # our own files
        script=Markup(_asset("page.js")),
        data=Markup(script_json(data)),  # nothing in it can end the element
    )
