"""Networks as programs with flat tensors in and out, for other run times.

    graphs_of(network) -> Graph, Graph …      write(graph, path) -> a file of ONNX
    Session(path).run({name: array}) -> {name: array}

Read `graphs` (what a graph is: its inputs and outputs by name; which graphs a network has, and
which it cannot have), `modules` (what is computed), `onnx` (written), `session` (read again and
run). Nothing here knows a text, a task or a family.
"""
