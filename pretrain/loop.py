"""The training loop of one worker: steps, validation, checkpoints, from wherever the last commit stands."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from cluster.journal import Journal
from cluster.storage import exclusive_lock, fingerprint, sha256_file, write_json
from data_prep.prepared import PreparedCorpus, open_prepared
from pretrain import checkpoint
from pretrain.config import PretrainConfig
from pretrain.data.lanes import LaneReader
from pretrain.engine.build import build_engine, gather_masters, gather_state, restore_state
from pretrain.evaluate import ValidationText, model_bits, ngram_bits
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.orders.mixture import OrderMixture
from pretrain.orders.words import WordPieces
from pretrain.randomness import key_seed
from pretrain.step import TrainState, train_step
from pretrain.weights import ModelDescription, save_model

_WAIT_FOR_OLD_WRITER_S = 60.0
"""After kill -9 of the starting process its workers live on for a moment."""

RESULT_NAME = "result.json"


@dataclass(frozen=True)
class Run:
    """What every worker is told."""

    config: PretrainConfig
    seed: int
    prep_folder: Path
    folder: Path

    @property
    def checkpoints(self) -> Path:
        """Folder of the commits."""
        return self.folder / "checkpoints"

    def fingerprint(self) -> str:
        """Ties a checkpoint to config, seed and corpus."""
        corpus = sha256_file(self.prep_folder / "manifest.json")
        return fingerprint([self.config.model_dump(mode="json"), self.seed, corpus])


def train(run: Run, device: torch.device) -> None:
    """Train to the last step and leave `model/` and `result.json`; the process group must stand."""
    with _only_writer(run):
        dist.barrier()
        corpus = open_prepared(run.prep_folder)
        journal = Journal(run.folder / "journal.jsonl") if dist.get_rank() == 0 else None
        state = _start(run, corpus, device, journal)
        text = _validation_text(run, corpus, run.config.validation.during_tokens)
        while state.step < run.config.num_steps:
            metrics = train_step(state)
            is_last = state.step == run.config.num_steps
            if is_last or state.step % run.config.validation.every_steps == 0:
                metrics["validation_bits_per_byte"] = _model_bits(state, text) / text.num_bytes()
            if journal:
                journal.step(state.step, metrics)
            if is_last or state.step % run.config.checkpoint.every_steps == 0:
                _save(run, state)
        _finish(run, corpus, state)
        if journal:
            journal.close()


def _only_writer(run: Run) -> AbstractContextManager[None]:
    if dist.get_rank() > 0:
        return nullcontext()
    return exclusive_lock(run.folder / ".writer.lock", wait_s=_WAIT_FOR_OLD_WRITER_S)


def _start(run: Run, corpus: PreparedCorpus, device: torch.device, journal: Journal | None) -> TrainState:
    """A fresh state, or the one of the newest valid commit."""
    config, rank, world_size = run.config, dist.get_rank(), dist.get_world_size()
    torch.manual_seed(key_seed(run.seed, "initialisation"))
    model = TwoStreamTransformer(config.model, corpus.tokenizer.vocab_size).to(device)
    model.activation_checkpointing = config.activation_checkpointing
    if config.compile:
        model.compile()
    per_worker = config.lanes // world_size
    state = TrainState(
        config=config,
        seed=run.seed,
        engine=build_engine(model, config, world_size),
        reader=LaneReader(corpus, "train", config.lanes, config.segment_tokens, run.seed),
        mixture=OrderMixture(
            config.objective, config.segment_tokens, WordPieces.of_tokenizer(corpus.tokenizer, device), device
        ),
        lanes=range(rank * per_worker, (rank + 1) * per_worker),
        device=device,
        memory=model.empty_memory(per_worker),
    )
    commit = _agreed_commit(run, journal)
    if commit is not None:
        loaded = checkpoint.load(commit, run.fingerprint())
        restore_state(state.engine, loaded.engine)
        state.memory = loaded.memory.lanes(state.lanes.start, state.lanes.stop).to(device)
        state.step = loaded.step
    if journal:
        where = f"resuming from checkpoint {commit.name}" if commit else "starting at step 0"
        journal.event(
            f"{where}: {world_size} workers, {config.precision}, ZeRO stage {config.zero_stage}, {dist.get_backend()}"
        )
    return state


def _agreed_commit(run: Run, journal: Journal | None) -> Path | None:
    """Rank 0 looks, everybody hears."""
    found: list[Path | None] = [None]
    if journal:
        checkpoint.remove_unfinished(run.checkpoints)
        found = [checkpoint.newest_valid(run.checkpoints, lambda text: journal.event(text, level="warning"))]
    dist.broadcast_object_list(found, src=0)
    return found[0]


def _save(run: Run, state: TrainState) -> None:
    """Commit a checkpoint; collective."""
    temporary = checkpoint.temporary_folder(run.checkpoints, state.step)
    engine_state = gather_state(state.engine)
    if dist.get_rank() == 0:
        temporary.mkdir(parents=True, exist_ok=True)
        checkpoint.write_engine_state(temporary, engine_state, state.step, run.fingerprint())
        description = ModelDescription.of(state.engine.module, run.config.segment_tokens)
        checkpoint.write_description(temporary, description, run.prep_folder / "tokenizer.json")
    dist.barrier()
    checkpoint.write_memory(temporary, state.memory, state.lanes.start)
    dist.barrier()
    if dist.get_rank() == 0:
        checkpoint.commit(run.checkpoints, state.step, run.config.checkpoint.keep)
    dist.barrier()


def _validation_text(run: Run, corpus: PreparedCorpus, wanted_tokens: int) -> ValidationText:
    return ValidationText.of_split(
        corpus, "validation", run.config.lanes, run.config.segment_tokens, wanted_tokens
    )


def _model_bits(state: TrainState, text: ValidationText) -> float:
    """The model's bits over all lanes of `text`; collective."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    bounds = [text.reader.lanes * part // world_size for part in (rank, rank + 1)]
    bits = model_bits(state.engine.module, text, range(*bounds), state.device)
    total = torch.tensor(bits, dtype=torch.float64, device=state.device)
    dist.all_reduce(total)
    return float(total)


def _finish(run: Run, corpus: PreparedCorpus, state: TrainState) -> None:
    """The final figures and the model folder; collective."""
    text = _validation_text(run, corpus, run.config.validation.final_tokens)
    bits = _model_bits(state, text)
    masters = gather_masters(state.engine)
    if dist.get_rank() == 0:
        unigram_bits, bigram_bits = ngram_bits(state.reader, state.step, text, corpus.tokenizer.vocab_size)
        num_bytes = text.num_bytes()
        save_model(
            state.engine.module,
            run.folder / "model",
            run.prep_folder / "tokenizer.json",
            masters,
            run.config.segment_tokens,
        )
        write_json(
            run.folder / RESULT_NAME,
            {
                "num_parameters": sum(parameter.numel() for parameter in state.engine.module.parameters()),
                "num_steps": state.step,
                "tokens_seen": state.step * run.config.tokens_per_step,
                "validation": {
                    "model_bits_per_byte": bits / num_bytes,
                    "unigram_bits_per_byte": unigram_bits / num_bytes,
                    "bigram_bits_per_byte": bigram_bits / num_bytes,
                    "num_bytes": num_bytes,
                },
                "world_size": dist.get_world_size(),
                "zero_stage": run.config.zero_stage,
                "backend": dist.get_backend(),
            },
        )
    dist.barrier()
