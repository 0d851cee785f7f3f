"""Whether a server loses requests while its models and its keys are replaced.

    python -m benchmarks.reloading --requests 20000

Clients ask a small classifier without pause. Meanwhile, in turn: the folder is pointed to another
model and reloaded over HTTP or by SIGHUP, pointed to a broken model, and the key of the clients is
rotated (both keys, then the new one), once with a file that is half written. Printed: how many
requests were answered by each model, and how many were lost, refused, or answered by neither.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.inference_models import read_texts, write_tokenizer
from benchmarks.serving import Server, ours
from benchmarks.serving_load import Connection, Question, is_answer, questions_of

ADMIN = "administrator-key"


def write_tiny_classifier(folder: Path, texts: Sequence[str], seed: int) -> None:
    """A BERT with 2 layers of width 64, random weights and four classes, and its tokenizer."""
    import torch
    import transformers

    torch.manual_seed(seed)
    folder.mkdir(parents=True)
    write_tokenizer(folder, "minilm", texts)
    config = transformers.BertConfig(
        num_hidden_layers=2,
        hidden_size=64,
        num_attention_heads=4,
        intermediate_size=128,
        num_labels=4,
        initializer_range=0.2,
    )
    transformers.BertForSequenceClassification(config).save_pretrained(folder)


class Replacements:
    """A served folder and a key file, and what is done to them.

    Attributes:
        folder: a link to one of `models`, or to the broken one.
        key: the key that clients use.
    """

    def __init__(self, workspace: Path, models: Sequence[Path]) -> None:
        self.models, self.folder, self.keys = models, workspace / "current", workspace / "keys.json"
        self.broken = workspace / "broken"
        shutil.copytree(models[0], self.broken)
        (self.broken / "model.safetensors").write_bytes(b"half a model")
        self.key = "client-key-0"
        self.counts: Counter[str] = Counter()
        self.point_to(models[0])
        self.write_keys(self.key)

    def point_to(self, model: Path) -> None:
        self.folder.unlink(missing_ok=True)
        self.folder.symlink_to(model)

    def write_keys(self, *client_keys: str) -> None:
        """Replace the key file at once."""
        callers = {f"client-{number}": {"key": key} for number, key in enumerate(client_keys)}
        content = {"callers": callers | {"admin": {"key": ADMIN, "admin": True}}}
        new_file = self.keys.with_suffix(".new")
        new_file.write_text(json.dumps(content))
        new_file.replace(self.keys)

    def reload(self, server: Server, by_signal: bool) -> int:
        """Reload; return the status, 0 by a signal."""
        if by_signal:
            server.process.send_signal(signal.SIGHUP)
            return 0
        headers = {"Authorization": f"Bearer {ADMIN}"}
        request = urllib.request.Request(f"{server.url}/admin/reload", b"", headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code

    async def run(self, server: Server, number: int) -> None:
        """One round of all replacements."""
        self.point_to(self.models[(number + 1) % 2])
        status = await asyncio.to_thread(self.reload, server, number % 2 == 1)
        self.counts[f"models replaced ({status or 'SIGHUP'})"] += 1
        old_key, new_key = self.key, f"client-key-{number + 1}"
        self.write_keys(old_key, new_key)
        await asyncio.sleep(2.5)  # the file is looked at once a second
        self.key = new_key
        await asyncio.sleep(2.5)  # clients that still wait have the old key
        self.keys.write_bytes(self.keys.read_bytes()[:40])
        self.counts["half a key file"] += 1
        await asyncio.sleep(1.5)
        self.write_keys(new_key)
        self.counts["keys rotated"] += 1
        self.point_to(self.broken)
        status = await asyncio.to_thread(self.reload, server, False)
        self.counts[f"broken model ({status})"] += 1


async def measure(
    server: Server,
    replacements: Replacements,
    questions: Sequence[Sequence[Question]],
    num_requests: int,
    num_clients: int,
) -> Counter[str]:
    """Outcomes of the requests."""
    outcomes: Counter[str] = Counter()

    async def client(number: int) -> None:
        connection, key = Connection(server.url, replacements.key), replacements.key
        while outcomes.total() < num_requests:
            if key != replacements.key:
                await connection.end()
                connection, key = Connection(server.url, replacements.key), replacements.key
            index = (outcomes.total() + number) % len(questions[0])
            try:
                status, body, _ = await connection.ask(questions[0][index])
            except (OSError, asyncio.IncompleteReadError):
                outcomes["lost"] += 1
                connection.close()
                continue
            if status != 200:
                outcomes[f"refused ({status})"] += 1
                continue
            by_model = [is_answer(answers[index], body) for answers in questions]
            outcomes["of " + "AB"[by_model.index(True)] if any(by_model) else "wrong"] += 1
        await connection.end()

    async def replace_all() -> None:
        for number in range(1_000):
            await replacements.run(server, number)

    replacing = asyncio.ensure_future(replace_all())
    await asyncio.gather(*map(client, range(num_clients)))
    replacing.cancel()
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--texts", type=Path)
    a = parser.parse_args()
    texts = read_texts(a.texts)[0][:64]
    with tempfile.TemporaryDirectory() as workspace:
        models = [Path(workspace) / name for name in "AB"]
        for seed, model in enumerate(models):
            write_tiny_classifier(model, texts, seed)
        questions = []
        for model in models:
            server = ours(model, 1)
            questions.append(asyncio.run(questions_of(server.url, "/predict", texts, "inputs")))
            server.stop()
        tolerant = [[replace(q, tolerance=0.01) for q in asked] for asked in questions]
        replacements = Replacements(Path(workspace), models)
        server = ours(replacements.folder, 1, "--keys", str(replacements.keys))
        begin = time.perf_counter()
        outcomes = asyncio.run(measure(server, replacements, tolerant, a.requests, a.clients))
        seconds = time.perf_counter() - begin
        print(f"{outcomes.total()} requests in {seconds:.0f} s: {dict(outcomes)}")
        print(f"lost: {outcomes['lost']}; meanwhile: {dict(replacements.counts)}")
        print("exit code:", server.stop())


if __name__ == "__main__":
    main()
