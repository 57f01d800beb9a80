"""A model as a folder that model hubs know: `model.safetensors`, `config.json` and a card; and back from a hub.

    from weftc.interop.hub import hub_model
    HubModel = hub_model()                       # needs huggingface_hub
    HubModel(weftc.load("model.safetensors")).save_pretrained("folder")      # or push_to_hub("me/model")
    model = HubModel.from_pretrained("folder").model

`model.safetensors` is the file that `weftc compile` writes. Nothing in a folder is executed.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weftc.core.errors import InputError
from weftc_runtime.format.checkpoint import Checkpoint
from weftc_runtime.format.whole_file import whole_file

if TYPE_CHECKING:
    from weftc_runtime import Model

MODEL, CONFIG, CARD = "model.safetensors", "config.json", "README.md"


def config(checkpoint: Checkpoint) -> dict[str, Any]:
    """What `config.json` says about a model."""
    program = checkpoint.program
    return {
        "model_type": "weftc",
        "algorithm": program.name,
        "dims": dict(checkpoint.dims),
        "params": dict(checkpoint.params),
        "layers": program.layers,
        "styles": dict(program.options),
        "inputs": [one.name for one in program.inputs],
        "outputs": [one.name for one in program.outputs],
        "compiler": checkpoint.compiler,
    }


def card(checkpoint: Checkpoint) -> str:
    """A model card."""
    program = checkpoint.program
    inputs = ", ".join(f"{one.name}=..." for one in program.inputs)
    lines = ["---", "library_name: weftc", "tags: [weftc, compiled-transformer]", "---", "", f"# {program.name}", ""]
    lines += [
        "A transformer compiled from the text below; what its weights compute is known.",
        "",
    ]
    lines += ["```python", "import weftc", "", f'model = weftc.load("{MODEL}")', f"model({inputs})", "```", ""]
    lines += [f"{program.layers} layers; " + ", ".join(f"{k} = {v}" for k, v in checkpoint.dims.items()) + ".", ""]
    lines += [f"Equal to the text under a condition: {condition.text}." for condition in program.conditions]
    if checkpoint.spec_text:
        lines += ["```", checkpoint.spec_text.rstrip(), "```", ""]
    lines += [f"`weftc verify {MODEL}` proves it from the file.", ""]
    return "\n".join(lines)


def save_folder(checkpoint: Checkpoint, folder: Path) -> tuple[Path, ...]:
    """Writes the three files into a folder that there is."""
    checkpoint.save(folder / MODEL)
    with whole_file(folder / CONFIG) as part:
        part.write_text(json.dumps(config(checkpoint), indent=2) + "\n", encoding="utf-8")
    with whole_file(folder / CARD) as part:
        part.write_text(card(checkpoint), encoding="utf-8")
    return tuple(folder / name for name in (MODEL, CONFIG, CARD))


@cache
def hub_model() -> Any:
    """A class of models that go to a hub and come back: `PyTorchModelHubMixin` around a loaded model."""
    try:
        from huggingface_hub import PyTorchModelHubMixin, hf_hub_download
    except ImportError:
        raise InputError("this needs huggingface_hub: pip install 'weftc[hub]'") from None
    from torch import nn

    class HubModel(  # type: ignore[call-arg,unused-ignore]  # the library is optional, and so are its types
        nn.Module,
        PyTorchModelHubMixin,  # type: ignore[misc,unused-ignore]
        library_name="weftc",
    ):
        """A compiled model; inputs are given by name, as to the model."""

        def __init__(self, model: Model) -> None:
            super().__init__()
            self.model = model

        def forward(self, *inputs: Any, **options: Any) -> Any:
            return self.model(*inputs, **options)

        def _save_pretrained(self, save_directory: Path) -> None:
            save_folder(self.model.checkpoint(), Path(save_directory))

        @classmethod
        def _from_pretrained(cls, *, model_id: str, **options: Any) -> HubModel:
            from weftc_runtime import load

            place = Path(model_id) / MODEL
            if not Path(model_id).is_dir():
                names = ("revision", "cache_dir", "force_download", "local_files_only", "token")
                known: dict[str, Any] = {name: options[name] for name in names if name in options}
                place = Path(hf_hub_download(model_id, MODEL, **known))
            return cls(load(place, device=options.get("map_location", "cpu")))

    return HubModel
