"""The circuit of a model: which node reads what of which other, from the matrices of its file alone.

wiring      a program, a number of layers -> its operations, one after the other
reading     matrices over slots, whatever basis the file is in; what every port reads
circuit     nodes, edges and what they carry
routed      the model with single edges cut or patched, in batches
ablation    is it the circuit: cut every edge and see
writing     JSON, GraphML, and the JSON of the Mechanistic Interpretability Benchmark
"""
