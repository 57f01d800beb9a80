"""`weftc export`: a spec or model -> a file for other people's tools."""

from __future__ import annotations

import argparse
import json

from weftc.commands.options import add_definitions, add_json, add_styles, positive, settings
from weftc.commands.progress import progress
from weftc.commands.target import compile_target, open_target, refuse_changes

SUMMARY = "write a model as plain torch, torch.export or ONNX"
EXAMPLE = """example:
  weftc export lloyd -D d=2 -D k=5 --layers 10 -o lloyd.py        # a readable module, needs torch alone
  weftc export model.safetensors -o model.onnx --dtype float32
  weftc export model.safetensors -o model.pt2 --batch
  weftc export lloyd -D d=2 -D k=5 --to softmax --sharpness 200 -o soft.py
  weftc export model.safetensors --to hub -o folder/

The ending of the file says what is written: .py (with its weights in a .safetensors file beside it), .pt2, .onnx.
An export decides in floating point, where Weft decides exactly; its output `margin` says how clear the closest
decision was. --batch gives .pt2 and .onnx files one more axis in front, and masks; a .py file takes both as it is.
--to softmax compiles a spec to softmax attention over inner products at a finite temperature and writes a .py file;
--to hub writes a folder with the model, a config.json and a card.
--json prints {kind, files, inputs, outputs, card}."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """A target, a file, and what is written."""
    parser.add_argument("target", metavar="SPEC|MODEL", help="a built-in spec, a .weft file or a .safetensors model")
    add_definitions(parser)
    parser.add_argument("--layers", type=positive, metavar="N", help="how many layers (default: as the spec or model)")
    add_styles(parser)
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="what to write: .py, .pt2 or .onnx")
    parser.add_argument(
        "--to", choices=("module", "pt2", "onnx", "softmax", "hub"), help="what to write, whatever the file is called"
    )
    parser.add_argument("--dtype", choices=("float64", "float32"), default="float64", help="of .pt2 and .onnx files")
    parser.add_argument("--batch", action="store_true", help="one more axis in front, and masks (.pt2, .onnx)")
    parser.add_argument("--force", action="store_true", help="replace existing files")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Writes the file and says what it takes and gives."""
    target = open_target(options.target)
    if options.to == "softmax" and target.checkpoint is None:
        from weftc.interop.exporting import ORDINARY

        for style, value in ORDINARY.items():
            setattr(options, style, getattr(options, style) or value)
    chosen = settings(options, target.checked)
    if target.checkpoint is not None:
        refuse_changes(target, options.definitions, dict(chosen.styles))
    checkpoint = compile_target(target, chosen)
    with progress(f"exporting {target.name}"):
        from weftc.interop.exporting import export

        written = export(
            checkpoint,
            options.output,
            to=options.to,
            layers=options.layers,
            dtype=options.dtype,
            batch=options.batch,
            force=options.force,
        )
    if options.json:
        told = {"kind": written.kind, "files": [str(path) for path in written.paths]}
        print(json.dumps({**told, "inputs": written.inputs, "outputs": written.outputs, "card": written.card}))
    else:
        print(written.text())
    return 0
