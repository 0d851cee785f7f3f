"""Networks as programs with flat tensors in and out, for other run times.

    graphs_of(network) -> Graph, Graph …      write(graph, path) -> a file of ONNX
    Session(path).run({name: array}) -> {name: array}

Read `ports` (what a graph is: its inputs and outputs by name), `modules` (what is computed),
`graphs` (which graphs a network has, and which it cannot have), `onnx` (written), `session` (read
again and run). Nothing here knows a text, a task or a family.
"""
