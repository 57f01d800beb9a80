"""A loaded model for TransformerLens: its sites as hook points, its runs with hooks and caches.

    from weftc.interop.transformer_lens import hooked
    lens = hooked(weftc.load("model.safetensors"))
    outputs, cache = lens.run_with_cache(x=x, c=c)
    cache["layers.0.blocks.0.attn.y.hook_pattern"]

Needs `pip install transformer_lens`; nothing else of Weft does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weftc.core.errors import InputError

if TYPE_CHECKING:
    from torch import nn

    from weftc_runtime import Model


def hooked(model: Model, layers: int | None = None) -> Any:
    """A `HookedRootModule` that runs the model; `layers` (as compiled, if not given) have hook points of their own.

    The model's own sites become hook points: what is hooked here is hooked there.
    """
    try:
        from transformer_lens import HookedRootModule
        from transformer_lens.hook_points import HookPoint
    except ImportError:
        raise InputError("this needs TransformerLens: pip install transformer_lens") from None
    from weftc_runtime.data.hooks import HookSite

    class Point(HookPoint, HookSite):  # type: ignore[misc]
        """A hook point that costs nothing while nobody listens."""

        forward = HookSite.forward

    class Lens(HookedRootModule):  # type: ignore[misc]
        """A compiled model; inputs are given by name, as to the model."""

        def __init__(self) -> None:
            super().__init__()
            object.__setattr__(self, "model", model)  # its parts are listed below, under their own names
            self.weights, self.prelude, self.blocks = model.weights, model.prelude, model.blocks
            self.readout, self.layers = model.readout, model.layers
            self.setup()

        def forward(self, inputs: Any = None, **options: Any) -> Any:
            return model(inputs, **options)

    for layer in range(model.program.layers if layers is None else layers):
        model.layers[layer]
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is HookSite:
                _replace(parent, name, Point())
    return Lens()


def _replace(parent: nn.Module, name: str, child: nn.Module) -> None:
    parent._modules[name] = child
