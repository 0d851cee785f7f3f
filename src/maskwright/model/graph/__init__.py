"""Export of networks to ONNX, for other runtimes.

    graphs_of(network) -> Graph, Graph …      write(graph, path) -> a file of ONNX
    Session(path).run({name: array}) -> {name: array}

Read `graphs` (inputs and outputs of a graph; the graphs of a network), `modules` (what they
compute), `onnx` (export), `session` (load and run).
"""
