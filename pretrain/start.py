"""Where training begins: with a fresh state, or with the one of the newest valid commit."""

import secrets
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from cluster.errors import UserError
from cluster.fault_points import fault_point
from cluster.journal import read_journal
from cluster.lineage import PATIENCE_FACT
from cluster.storage import read_document
from pretrain.agreement import agreed
from pretrain.attempt import Attempt
from pretrain.checkpoint.compatibility import check_num_steps, check_resumable
from pretrain.checkpoint.finding import (
    STATE_NAME,
    discard_newer,
    newest_valid,
    remove_commit,
    remove_unfinished,
)
from pretrain.checkpoint.listing import step_folders, step_of
from pretrain.checkpoint.reading import open_commit
from pretrain.data.feed import LaneFeed
from pretrain.data.lanes import LaneReader
from pretrain.engine.training_engine import TrainingEngine
from pretrain.health.divergence import pending_return
from pretrain.health.rewinds import Rewinds, read_rewinds
from pretrain.health.spikes import SpikeDetector
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.orders.mixture import OrderMixture
from pretrain.orders.words import WordPieces
from pretrain.randomness import key_seed
from pretrain.recorder import Recorder, tell_rewind
from pretrain.run import Run
from pretrain.saving import Saver
from pretrain.step import TrainState


@dataclass(frozen=True)
class Origin:
    """What training goes on from, the same for all workers."""

    attempt: int
    """How many attempts at the run there were, this one included."""
    commit: Path | None
    rewinds: Rewinds
    token: str
    """Nobody else's: names the temporary folders of this attempt's commits."""


def start(this: Attempt) -> TrainState:
    """The state to go on from, and a line in the journal that says which; collective.

    Raises UserError when no commit is valid or the newest is of another run.
    """
    origin = agreed(lambda: _look(this.run, this.recorder))
    this.watchdog.at(0, "start")
    fault_point("start.agreed")
    state = _fresh_state(this, origin.rewinds)
    if origin.commit is not None:
        _restore(state, this, origin.commit)
        fault_point("start.restored")
    elif this.run.accepted and origin.attempt > 1:
        this.recorder.event("accepted: there is no checkpoint to compare with", "warning", name="accepted")
    this.saver = Saver(this.run, this.identity, state, origin.token, this.recorder, this.watchdog)
    state.feed = LaneFeed(state.reader, state.lanes, state.cursor)
    _tell(state, this, origin)
    return state


def _look(run: Run, recorder: Recorder) -> Origin:
    rewinds = read_rewinds(run.folder)
    remove_unfinished(run.checkpoints)
    _remove_void(run.checkpoints, rewinds)
    records = read_journal(run.journal)
    back_to = pending_return(records)
    commit = newest_valid(
        run.checkpoints,
        lambda damaged: recorder.event(
            str(damaged), "warning", name="damaged", commit=damaged.commit, problem=damaged.problem
        ),
        back_to,
    )
    if back_to is not None:
        discard_newer(run.checkpoints, back_to)
    for rewind in rewinds.rewinds[sum(record.name == "rewind" for record in records) :]:
        tell_rewind(recorder, rewind)  # a kill came between the file and the journal
    attempts = sum(record.name == "attempt" for record in records)
    return Origin(attempts, commit, rewinds, secrets.token_hex(4))


def _remove_void(checkpoints: Path, rewinds: Rewinds) -> None:
    """Finish a rewind that was killed: commits behind its target are not to be gone on from."""
    for folder in step_folders(checkpoints):
        try:
            seen = int(read_document(folder / STATE_NAME)["rewinds_seen"])
        except (OSError, UserError, KeyError, TypeError, ValueError):
            continue  # a damaged one; it will be passed over
        if rewinds.is_void(step_of(folder) or 0, seen):
            remove_commit(folder)


def _fresh_state(this: Attempt, rewinds: Rewinds) -> TrainState:
    run, corpus, device = this.run, this.corpus, this.device
    config, health, world_size = run.config, run.config.health, dist.get_world_size()
    torch.manual_seed(key_seed(run.seed, "initialisation"))
    model = TwoStreamTransformer(config.model, corpus.tokenizer.vocab_size).to(device)
    model.activation_checkpointing = config.activation_checkpointing
    if config.compile:
        model.compile()
    per_worker = config.lanes // world_size
    lanes = range(dist.get_rank() * per_worker, (dist.get_rank() + 1) * per_worker)
    memory = model.empty_memory(per_worker)
    reader = LaneReader(this.corpora, "train", config.lanes, config.segment_tokens, run.seed)
    words = WordPieces.of_tokenizer(corpus.tokenizer, device)
    return TrainState(
        config=config,
        seed=run.seed,
        engine=TrainingEngine(model, config, world_size),
        reader=reader,
        mixture=OrderMixture(config.objective, config.segment_tokens, words, device),
        lanes=lanes,
        device=device,
        memory=memory,
        spikes=SpikeDetector(health.spike_window_steps, health.spike_threshold, health.spike_patience_steps),
        rewinds=rewinds,
        cursor=rewinds.first_from(0),
    )


def _restore(state: TrainState, this: Attempt, folder: Path) -> None:
    """Take up everything that a commit holds."""
    commit = open_commit(folder)
    for change in check_resumable(commit.identity, this.identity, this.run.accepted):
        this.recorder.event(f"accepted: {change}", "warning", name="accepted", key=change.key)
    check_num_steps(commit.step, state.config)
    state.engine.restore(commit)
    state.memory = commit.memory(state.lanes).to(state.memory.group_BM.device)
    if commit.state["rewinds_seen"] > len(state.rewinds):
        raise UserError(
            f"{folder} was made after {commit.state['rewinds_seen']} rewinds, rewinds.json in {this.run.folder} knows "
            f"{len(state.rewinds)}: restore that file, or use another --out"
        )
    state.step = commit.step
    # A rewind may have made the data after the commit pass over.
    state.cursor = state.rewinds.first_from(commit.cursor)
    state.spikes.restore(commit.state["spikes"])
    state.cursors = {int(step): cursor for step, cursor in commit.state["cursors"]}


def _tell(state: TrainState, this: Attempt, origin: Origin) -> None:
    config, commit = this.run.config, origin.commit.name if origin.commit else None
    where = f"resuming from checkpoint {commit}" if commit else "starting at step 0"
    text = (
        f"{where}: {dist.get_world_size()} workers, {config.precision}, ZeRO stage {config.zero_stage}, "
        f"{dist.get_backend()}"
    )
    facts = {
        "attempt": origin.attempt,
        "step": state.step,
        "cursor": state.cursor,
        "commit": commit,
        "world_size": dist.get_world_size(),
        "zero_stage": config.zero_stage,
        "precision": config.precision,
        "num_steps": config.num_steps,
        "lanes": config.lanes,
        "segment_tokens": config.segment_tokens,
        "corpus": this.identity.corpus,
        PATIENCE_FACT: config.health.spike_patience_steps if config.health.spikes == "rewind" else None,
    }
    this.recorder.begin(text, is_first=this.is_first_start, **facts)
    this.is_first_start = False
