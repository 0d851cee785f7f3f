"""Every family with every head, as graphs of ONNX: how far they are from the model.

    python -m benchmarks.exports            small random models; a line for each graph
    python -m benchmarks.exports bert t5    of these families alone

Each graph is written, read again by ONNX Runtime in float32 and compared at one row and several,
one token and the longest text, with a past and without. It takes some seconds for each graph.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from checkpoint.small import SMALL, model_of, small
from maskwright.base.errors import IncompatibleError
from maskwright.model.families.base.family import family
from maskwright.model.graph.graphs import graphs_of
from maskwright.model.graph.onnx import write
from maskwright.model.graph.session import Session
from maskwright.ship.export.folder import compare_graph


def measure(name: str, architecture: str, folder: Path) -> list[list[str]]:
    """A row of the table for each graph."""
    network = model_of(small(family(name), architecture))
    rows = []
    try:
        graphs = graphs_of(network, decoder_start=0)
    except IncompatibleError as error:
        return [[name, architecture, "", "none", str(error)]]
    for graph in graphs:
        begin = time.perf_counter()
        (file,) = write(graph, folder)
        seconds = time.perf_counter() - begin
        found = compare_graph(graph, Session(file).run, file.stat().st_size, timed=False)
        rows.append(
            [
                name,
                architecture,
                graph.name,
                f"{found.difference:.1e}",
                f"{found.agreement:.2%}",
                f"{seconds:.0f} s",
            ]
        )
    return rows


def main(names: list[str]) -> None:
    print("| family | class | graph | largest difference | same answers | written in |")
    print("|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in names or SMALL:
            for architecture in family(name).architectures:
                for row in measure(name, architecture, Path(folder)):
                    print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
