"""Kernels for GPUs in Triton, an optional dependency (`pip install 'weftc[gpu]'`)."""
