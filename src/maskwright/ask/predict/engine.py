"""An opened model with its networks prepared once for all uses: rows in, scores or text out.

    Model (opened folder) -> Engine -> LanguageModel (the public object), Predictor (a task's head)

Preparing a network converts weights to a layout for inference and frees the originals, so that none
is in memory twice; `Engine.restored` brings them back. An adapter on an opened base is kept
separate from the weights if possible, so that weights equal to the base's are shared with it.
"""

from __future__ import annotations

import threading
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from maskwright.ask.predict.predictor import (
    BagOfWordsPredictor,
    Predictor,
    TaskPredictor,
    of_vectors,
    predictor,
)
from maskwright.base.config import fingerprint
from maskwright.base.errors import Finding, IncompatibleError, MaskwrightError, Note, UsageError
from maskwright.base.terminal import counted
from maskwright.learn.finetune.recipe import hashes
from maskwright.learn.tasks.base import late_interaction
from maskwright.learn.tasks.base.choices import require_choice
from maskwright.learn.tasks.base.task_type import TaskType
from maskwright.model.adapters.base import folder as folder_of_adapters
from maskwright.model.checkpoint.fine_tuned import ADAPTER
from maskwright.model.checkpoint.matching import TOPS
from maskwright.model.device.choices import TORCH, Precision
from maskwright.model.device.machine import choose
from maskwright.model.inference import fill_mask, likelihood, text_generation
from maskwright.model.inference.generation import require_writer
from maskwright.model.inference.generation_settings import GenerationSettings
from maskwright.model.inference.growing_text import Piece
from maskwright.model.inference.prepared import Prepared, prepare
from maskwright.model.nn.transformer import Transformer
from maskwright.model.opening import folders
from maskwright.model.opening.folders import Model
from maskwright.model.opening.open import home_of, is_adapter, is_bag_of_words, open_model

# Identifies a task head: TASK, or ("vectors", pooling) for embeddings (None: that of the model, or
# else the mean).
Head = tuple[str, str | None]
TASK: Head = ("task", None)
# Tolerance for weights with an adapter merged into them on another machine.
NEAR: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-6}


class Engine:
    """Computes with an opened model. Networks and task heads are created when they are needed.

    Attributes:
        has_network: whether anything but predictions can be computed.
        precision: the default precision of the computation.
        base: the engine whose weights this one shares; None: it shares none.
        runtime: computes hidden states: "torch" or one of `model/graph/engines/`.
        runtime_findings: findings about the runtime, after the network was prepared.
        name: the name of the model in messages.
        folder: the path of the folder as it was given.
        findings: assumptions made when the folder was opened.
        device_type: the type of the device that computes, such as "cpu".
    """

    has_network: ClassVar[bool] = True

    def __init__(
        self, model: Model, precision: Precision, base: Engine | None = None, runtime: str = TORCH
    ) -> None:
        self._model, self.precision, self.base, self.runtime = model, precision, base, runtime
        self.runtime_findings: tuple[Finding, ...] = ()
        self.folder, self.name = model.folder, folders.called(model.folder)
        self.findings: Sequence[Finding] = model.findings
        self.device_type = model.network.device.type
        self.num_parameters = model.network.num_parameters()
        self._networks: dict[torch.dtype, Prepared] = {}
        self._poolings: dict[str, Predictor] = {}
        self._frees = True
        self._heads: dict[Head, TaskPredictor] = {}
        self._lock = threading.Lock()  # of the creation of heads

    @property
    def model(self) -> Model:
        """The opened folder; weights of its network may be freed.

        Raises:
            IncompatibleError: there is no network.
        """
        return self._model

    @property
    def dtype_name(self) -> str:
        """The number format of the computation, such as "float32"."""
        return str(self.network().dtype).removeprefix("torch.")

    @cached_property
    def fingerprint(self) -> str:
        """The hash of the model and of its adapter."""
        return self.model.fingerprint

    # -------------------------------------------------------------------------------- the network
    def network(self, precision: Precision | None = None) -> Prepared:
        """Return the network prepared for inference, cached for each precision."""
        precision, network = precision or self.precision, self.model.network
        dtype = choose(precision, str(network.device)).compute
        if dtype not in self._networks:
            if self.base is not None:
                prepared = prepare(network, precision=precision, like=self.base.network(precision))
            else:
                self._restore()  # preparing a second precision needs all weights
                frees = self._frees and not self._networks
                prepared = prepare(network, precision=precision, give_up=frees)
            self._networks[dtype] = self._with_runtime(prepared, precision)
        return self._networks[dtype]

    def _with_runtime(self, prepared: Prepared, precision: Precision) -> Prepared:
        """Return the network with the chosen runtime. A second precision, or another head on the
        same stack, reuses the choice; an adapter beside the weights needs the native one."""
        if self.runtime == TORCH:
            return prepared
        from maskwright.ask.predict.engine_network import EngineNetwork, is_plain, with_engine

        if self.base is not None:
            if not is_plain(prepared.network):
                message = "what an adapter does beside the weights is read by our own engine"
                self.runtime_findings = (Finding("engine-left-out", message),)
                self.runtime = TORCH
                return prepared
            shared = self.base.network(precision).engine
            if shared is not None and _one_stack(prepared.network, self.base.model.network):
                return EngineNetwork(prepared, shared)
        network, self.runtime_findings = with_engine(prepared, self.runtime)
        return network

    def restored(self) -> Model:
        """Return the opened folder after restoring all weights of its network for good."""
        self._frees = False
        if self.base is not None:
            self.base.restored()
        self._restore()
        return self.model

    def _restore(self) -> None:
        for network in self._networks.values():
            network.restore()

    # ----------------------------------------------------------------------------- rows and scores
    @cached_property
    def predictor(self) -> TaskPredictor:
        """The predictor of the task that the model was trained for.

        Raises:
            IncompatibleError: the model was not trained for a task.
        """
        return replace(predictor(self.model), network=self.network)

    def loaded_head(self, head: Head) -> TaskPredictor | None:
        """Return `head(head)` if it was created before; else None."""
        return self._heads.get(head)

    def head(self, head: Head) -> TaskPredictor:
        """Return the predictor of a task head, whose objective is created once, for any thread.

        Raises:
            IncompatibleError: the model has no such head.
            UsageError: as `embedder`.
        """
        with self._lock:
            if head not in self._heads:
                if head != TASK and "embed" not in self.abilities:
                    raise IncompatibleError("the model makes no vectors", found=self.describe())
                predictor = self.predictor if head == TASK else self.embedder(head[1])
                if isinstance(predictor, Predictor):
                    _ = predictor.objective
                self._heads[head] = predictor
            return self._heads[head]

    def embedder(self, pooling: str | None) -> Predictor:
        """Return the predictor of embeddings: the one that the model was trained for, else one that
        pools hidden states; `pooling` None: the mean.

        Raises:
            UsageError: the model does not support this pooling, or has its own.
            IncompatibleError: the model cannot embed texts.
        """
        task_predictor = None
        if "predict" in self.abilities or self.model.has_modules:
            # A folder of vectors that cannot be followed is refused, and not pooled otherwise.
            task_predictor = self.predictor
        if isinstance(task_predictor, Predictor) and task_predictor.task_type.alone:
            if pooling is not None:
                raise UsageError(
                    "this model has its own pooling",
                    where="pooling",
                    found=repr(pooling),
                    do="leave it out",
                )
            return task_predictor
        return self.pooled(pooling or "mean")

    def pooled(self, pooling: str) -> Predictor:
        """Return the predictor of embeddings by `pooling` ("mean", "max", and for encoders "cls"),
        for a model that was not trained for embeddings; a `UsageError` for other poolings."""
        poolings = {"mean", "max"} | (set() if self.model.config.encoder is None else {"cls"})
        require_choice(pooling, poolings, "pooling")
        if pooling not in self._poolings:
            pooled = of_vectors(self.model, pooling)
            self._poolings[pooling] = replace(pooled, network=self.network)
        return self._poolings[pooling]

    @cached_property
    def late(self) -> late_interaction.LateInteraction | None:
        """How vectors of tokens are made and compared; None for other models.

        Raises:
            CheckpointError, IncompatibleError: the folder is damaged, or not supported.
        """
        model = self.model
        if model.words is None or not model.has_modules:
            return None
        longest = model.config.longest or TaskType.longest
        return late_interaction.read(model.path, model.words, model.config.width, longest)

    def token_vectors(
        self, texts: Sequence[str], role: late_interaction.Role, note: Note
    ) -> list[NDArray[np.float32]]:
        """As `LanguageModel.embed_all`; `note` is called with findings about truncated texts."""
        if self.late is None:
            raise IncompatibleError("the model makes no vectors of tokens")
        rows = self.late.encode(texts, role)
        for finding in self.late.findings(rows, role):
            note(finding)
        return self.late.vectors(self.network(), rows, role)

    def fill_masks(
        self,
        texts: Sequence[str],
        top: int,
        note: Note,
        *,
        live: bool = False,
        windows: bool = False,
    ) -> list[list[fill_mask.Hole]]:
        """As `LanguageModel.fill_mask`; `note` is called with findings about unknown words.

        Args:
            live: the network is used only once, so it is not prepared.
            windows: predict each mask of a text that exceeds the model's context in a window around
                that mask.
        """
        model, network = self.model, self.model.network if live else self.network()
        masked = [fill_mask.masked_text(model, text, windows=windows) for text in texts]
        predictions = fill_mask.read_masks(model, network, masked, top)
        return [
            fill_mask.spelled_masks(model, text, holes, note)
            for text, holes in zip(masked, predictions, strict=True)
        ]

    def log_likelihoods(self, texts: Sequence[str], method: str | None) -> NDArray[np.float64]:
        """As `LanguageModel.log_likelihood`, (N,), in float32."""
        model, network = self.model, self.network()
        method = method or likelihood.scoring_method(model.network, model.conventions)
        exact_network = network if network.dtype == torch.float32 else model.network
        return likelihood.scores(exact_network, model.tokenizer, texts, method)

    # ---------------------------------------------------------------------------- prompts and text
    def generate(
        self,
        texts: Sequence[str],
        settings: GenerationSettings,
        precision: Precision | None = None,
    ) -> list[str]:
        """Generate a continuation of each text; see `text_generation.generate_texts`."""
        return text_generation.generate_texts(self.model, self._writer(precision), texts, settings)

    def stream(
        self, text: str, settings: GenerationSettings, precision: Precision | None = None
    ) -> Iterator[Piece]:
        """Yield what `generate` adds to the text, in pieces that are final."""
        if settings.num_beams != 1:
            raise UsageError(
                "beam search writes the whole text at once",
                where="num_beams",
                found=settings.num_beams,
                do="leave it out, or generate the text instead of streaming it",
            )
        network = self._writer(precision)
        prompts = text_generation.prompts_of(self.model, [text], settings)
        return text_generation.stream_texts(self.model, network, prompts)

    def _writer(self, precision: Precision | None) -> Prepared:
        require_writer(self.model.config, one_way=self.model.conventions.writes)
        return self.network(precision)

    # ------------------------------------------------------------------------------- abilities
    @cached_property
    def abilities(self) -> tuple[str, ...]:
        """The names of the methods of `LanguageModel` that this model supports."""
        config, conventions = self.model.config, self.model.conventions
        methods = []
        with suppress(MaskwrightError):
            _ = self.predictor
            methods.append("predict")
        tokenizer = self.model.words
        if tokenizer is None:
            return tuple(methods)
        if config.vocabulary_head is not None:
            fillable = tokenizer.mask is not None or bool(tokenizer.sentinels)
            if config.encoder is not None and fillable:
                methods.append("fill_mask")
            writes = config.decoder is not None and conventions.decoder_trained
            if writes or conventions.writes:
                methods.append("generate")
        with suppress(MaskwrightError):
            methods += [] if self.late is None else ["embed_all"]
        pools = "predict" in methods or not self.model.has_modules
        if pools and (config.encoder is not None or self.model.num_stacks != 2):
            methods.append("embed")
        with suppress(IncompatibleError):
            likelihood.scoring_method(self.model.network, conventions)
            methods.append("log_likelihood")
        return (*methods, "tokens")

    def describe(self) -> str:
        """Return family, stacks, sizes and heads of the model, in one line."""
        config = self.model.config
        configs = {"encoder": config.encoder, "decoder": config.decoder}
        present = {name: stack for name, stack in configs.items() if stack is not None}
        stacks, layers = "–".join(present), "+".join(str(len(s.blocks)) for s in present.values())
        heads = [f"a {head.kind} head" for head in config.heads]
        heads += ["a vocabulary head"] if config.vocabulary_head is not None else []
        return (
            f"{self.model.model_type}, {stacks}, {layers} layers of width {config.width}, "
            f"{self.num_parameters:,} parameters, {' and '.join(heads) or 'no head'}"
        )

    # -------------------------------------------------------------------------------- adapters
    @cached_property
    def without_adapter(self) -> Engine:
        """This engine, or that of the base of an adapter folder, opened at first access."""
        if self.base is not None or not self.has_network or not self.model.is_adapter:
            return self
        return Engine(open_model(self.model.path), self.precision, runtime=self.runtime)

    def with_adapter(self, folder: Path | str) -> Engine:
        """Open an adapter of this model in `folder`, or a fine-tuning that changed only an adapter
        or a head; its other weights are shared with this model.

        Raises:
            IncompatibleError: it was trained on another model.
            Others: as in `open_model`.
        """
        home = home_of(Path(folder))
        base = self.model.path if is_adapter(home) else None
        model = open_model(folder, base=base)
        shared = self._share_weights(model)
        if not shared or not self._same_tokenizer(model):
            raise IncompatibleError(
                "the adapter stands on another model",
                where=folder,
                found="other weights" if not shared else "another tokenizer",
                wanted=f"an adapter or a head that was trained on {self.model.path}",
                do="open it by itself: maskwright.load",
            )
        return Engine(model, self.precision, self, self.runtime)

    @property
    def root(self) -> Engine:
        """The engine whose weights this one shares, or itself."""
        return self if self.base is None else self.base.root

    def sharing(self, candidate: Engine) -> Engine | None:
        """Return an engine for the model of `candidate` that shares equal weights with this one.
        None if token embeddings or tokenizer differ, or one has no network."""
        if not (self.has_network and candidate.has_network):
            return None
        model = candidate.model
        if model.config.tokens != self.model.config.tokens or not self._same_tokenizer(model):
            return None
        if not self._share_weights(model):
            return None
        return Engine(model, self.precision, self, self.runtime)

    def _share_weights(self, model: Model) -> bool:
        """Let `model` use this model's tensors for all weights that are equal; returns False, and
        shares nothing, if the token embeddings differ."""
        ours = self.model.network
        with ExitStack() as meanwhile:
            for network in self._networks.values():
                meanwhile.enter_context(network.products.whole(ours))
            _separate_adapter(model, ours)
            return _share_equal(model.network, ours)

    def _same_tokenizer(self, model: Model) -> bool:
        """Whether both have the same tokenizer, or one of them has none."""
        ours, theirs = self.model.words, model.words
        return ours is None or theirs is None or theirs.fingerprint == ours.fingerprint


class BagOfWordsEngine(Engine):
    """A bag of words: it predicts, and everything that needs a network is refused."""

    has_network = False

    def __init__(self, predictor: BagOfWordsPredictor, folder: Path, precision: Precision) -> None:
        self.precision, self.base, self.runtime = precision, None, TORCH
        self.runtime_findings = ()
        self.folder, self.name = folder, folders.called(folder)
        self.findings, self.device_type = predictor.findings, "cpu"
        self.num_parameters = predictor.bag.weights.size
        self._networks, self._poolings, self._bag = {}, {}, predictor
        self._heads, self._lock = {TASK: predictor}, threading.Lock()

    @property
    def model(self) -> Model:
        raise IncompatibleError(
            "the model is a bag of words and has no network",
            where=self.folder,
            found=self.describe(),
            wanted="a model with a network",
            do="let it predict; for all else fine-tune with another method, such as --method "
            "embeddings",
        )

    @property
    def dtype_name(self) -> str:
        return "float32"

    @cached_property
    def fingerprint(self) -> str:
        assert self._bag.path is not None
        return fingerprint(hashes(self._bag.path))

    @cached_property
    def abilities(self) -> tuple[str, ...]:
        return ("predict",)

    def describe(self) -> str:
        num_labels, num_features = self._bag.bag.weights.shape
        return f"bag of words, {num_features:,} features, {counted(num_labels, 'score')}"

    @cached_property
    def predictor(self) -> TaskPredictor:
        return self._bag


def open_engine(
    folder: Path | str,
    *,
    base: Path | str | None = None,
    precision: Precision = "auto",
    device: str = "auto",
    runtime: str = TORCH,
) -> Engine:
    """Open the model in `folder`; args as in `Engine`, `open_model` and `choose`.

    Raises:
        UsageError: another runtime than "torch" for a bag of words; and as `open_model`.
    """
    target = choose(precision, device).device  # refuses a device that is not there
    if base is not None or not is_bag_of_words(Path(folder)):
        model = open_model(folder, base=base)
        if device != "auto":
            model.network.to(target)
        return Engine(model, precision, runtime=runtime)
    if runtime != TORCH:
        raise UsageError(
            "a bag of words has no network that an engine could compute",
            where="engine",
            found=runtime,
            wanted=TORCH,
            do="leave it out",
        )
    return BagOfWordsEngine(BagOfWordsPredictor.opened(folder), Path(folder), precision)


def _one_stack(network: Transformer, base: Transformer) -> bool:
    """Whether both use the same parameter objects, apart from heads."""
    base_parameters = dict(base.named_parameters())
    return all(
        base_parameters.get(name) is parameter
        for name, parameter in network.named_parameters()
        if not name.startswith(TOPS)
    )


@torch.no_grad()
def _separate_adapter(model: Model, base: Transformer) -> None:
    """If `model` is `base` with an adapter merged into its weights, restore the weights of `base`
    and attach the adapter separately; change nothing if that does not give the same model."""
    folder = model.home if model.is_adapter else model.home / ADAPTER
    base_parameters, network = dict(base.named_parameters()), model.network
    changed = {
        name: parameter
        for name, parameter in network.named_parameters()
        if not name.startswith(TOPS)
        and name in base_parameters
        and base_parameters[name].shape == parameter.shape
        and not torch.equal(base_parameters[name], parameter)
    }
    if not changed or not folder.is_dir():
        return
    folded = {name: parameter.clone() for name, parameter in changed.items()}
    for name, parameter in changed.items():
        parameter.copy_(base_parameters[name])
    if not _attach_if_merged(network, folder, model.about.family, folded):
        for name, parameter in changed.items():
            parameter.copy_(folded[name])


def _attach_if_merged(
    network: Transformer, folder: Path, family: str | None, folded: Mapping[str, torch.Tensor]
) -> bool:
    """Attach the adapter in `folder` if merging it gives the `folded` weights (name to tensor);
    returns whether it does."""
    try:
        adapter = folder_of_adapters.load(network, folder, family=family)
    except MaskwrightError:
        return False
    weights: dict[str, torch.Tensor] = {}
    if adapter.settings.merges:
        for path, branch in adapter.places():
            folded_parts = branch.folded(network.get_submodule(path))
            weights |= {f"{path}.{suffix}": weight for suffix, weight in folded_parts.items()}
    if all(n in weights and torch.allclose(weights[n], folded[n], **NEAR) for n in folded):
        return True
    adapter.detach()
    return False


def _share_equal(network: Transformer, base: Transformer) -> bool:
    """Let `network` use the parameters of `base` for all weights that are equal, if the token
    embeddings are; returns whether they are."""
    embeddings, base_embeddings = network.tokens.weight, base.tokens.weight
    if embeddings.shape != base_embeddings.shape or not torch.equal(embeddings, base_embeddings):
        return False
    base_parameters = dict(base.named_parameters())
    for name, parameter in list(network.named_parameters()):
        ours = base_parameters.get(name)
        if ours is not None and ours.shape == parameter.shape and torch.equal(ours, parameter):
            path, _, attribute = name.rpartition(".")
            network.get_submodule(path)._parameters[attribute] = ours
    return True


def require_new_adapter(name: str, names: Container[str | None]) -> None:
    """Raise a `UsageError` if an adapter called `name` is loaded already."""
    if name in names:
        raise UsageError(
            "an adapter of that name is loaded already",
            where="name",
            found=repr(name),
            do="give another name",
        )
