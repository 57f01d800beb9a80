"""Compiled models in other people's tools: a checkpoint -> plain torch code, torch.export, ONNX."""
