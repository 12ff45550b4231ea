"""The search over learning rates: every rate is tried, the best on the validation split is kept."""

from pathlib import Path

import pytest

from cluster.errors import UserError
from cluster.storage import read_json
from finetune.experiment import rate_search
from finetune.experiment.config import ExperimentConfig
from finetune.experiment.rate_search import Trained, search
from finetune.experiment.results import rates_text
from finetune.training.best_weights import Best
from finetune.training.config import FitConfig
from finetune.training.finetuner import Diverged, FitEnd

_RATES = (0.001, 0.002, 0.004)


@pytest.fixture(autouse=True)
def _one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_search, "agreed", lambda look: look())


class Trainings:
    """Each ends as `ends` says: with a metric, diverged (None), or stopped."""

    def __init__(self, *ends: float | str | None) -> None:
        self._ends, self.rates = list(ends), list[float]()

    def __call__(self, rate: float, folder: Path) -> FitEnd:
        self.rates.append(rate)
        end = self._ends.pop(0)
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        for name in ("journal.jsonl", "best.safetensors"):
            (folder / name).write_text(f"{name} of {rate}")
        if end is None:
            raise Diverged("loss not finite")
        if isinstance(end, str):
            return FitEnd(3, None, stopped=True)
        return FitEnd(9, Best(6, end), stopped=False)


def test_the_best_rate_s_weights_and_journal_become_the_job_s(tmp_path: Path) -> None:
    trained = search(tmp_path, _RATES, Trainings(0.2, 0.4, 0.3))
    assert trained.learning_rate == 0.002
    assert trained.end == FitEnd(9, Best(6, 0.4), stopped=False)
    assert [(one.learning_rate, one.valid) for one in trained.tried] == [
        (0.001, 0.2),
        (0.002, 0.4),
        (0.004, 0.3),
    ]
    for name in ("journal.jsonl", "best.safetensors"):
        assert (tmp_path / name).read_text() == f"{name} of 0.002"
    left = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.glob("rate-*/*"))
    assert left == ["rate-0.001/journal.jsonl", "rate-0.002/journal.jsonl", "rate-0.004/journal.jsonl"]


def test_a_rate_that_diverges_is_reported_and_not_kept(tmp_path: Path) -> None:
    trained = search(tmp_path, _RATES, Trainings(-1.0, -2.0, None))
    assert trained.learning_rate == 0.001
    assert rates_text(trained.result_values()) == "0.001 -1 (kept), 0.002 -2, 0.004 diverged"


def test_where_all_diverge_one_line_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"every one of training.learning_rates \(0.001, 0.002\)"):
        search(tmp_path, _RATES[:2], Trainings(None, None))


def test_of_rates_that_do_as_well_the_first_is_kept(tmp_path: Path) -> None:
    assert search(tmp_path, _RATES, Trainings(0.0, 0.0, 0.0)).learning_rate == 0.001


def test_a_search_that_is_stopped_goes_on_and_a_finished_one_trains_nothing(tmp_path: Path) -> None:
    stopped = search(tmp_path, _RATES, Trainings(0.2, "stopped"))
    assert stopped.end.stopped
    assert not (tmp_path / "learning_rates.json").exists()
    whole = search(tmp_path, _RATES, Trainings(0.2, 0.4, 0.3))
    again = Trainings()
    assert search(tmp_path, _RATES, again) == whole
    assert again.rates == []
    assert len(read_json(tmp_path / "learning_rates.json")["tried"]) == 3


def test_what_a_kill_at_the_end_of_a_search_left_is_removed_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(rate_search.shutil, "rmtree", kill)
        with pytest.raises(KeyboardInterrupt):
            search(tmp_path, _RATES, Trainings(0.2, 0.4, 0.3))
    assert (tmp_path / "learning_rates.json").exists()
    assert len(list(tmp_path.glob("rate-*/checkpoints"))) == 3
    assert search(tmp_path, _RATES, Trainings()).learning_rate == 0.002
    left = {path.name for path in tmp_path.glob("rate-*/*")}
    assert left == {"journal.jsonl"}
    assert (tmp_path / "best.safetensors").read_text() == "best.safetensors of 0.002"


def test_only_the_first_seed_of_systems_that_learn_searches_and_an_own_rate_is_not_searched_for() -> None:
    config = ExperimentConfig.model_validate(
        {
            "task": {"kind": "infilling"},
            "systems": {
                "ngram": {"kind": "ngram"},
                "own": {"kind": "permutation_lm"},
                "other": {"kind": "transformer"},
                "third": {"kind": "aligned_rnn"},
            },
            "training": {"learning_rates": _RATES},
            "training_of": {"other": {"learning_rate": 0.01}, "third": {"learning_rates": [0.1, 0.2]}},
            "num_seeds": 2,
        }
    )
    tried = {
        (name, seed): config.rates_to_try(name, seed) for name in config.systems for seed in config.seeds()
    }
    assert {key: rates for key, rates in tried.items() if rates} == {
        ("own", 0): _RATES, ("third", 0): (0.1, 0.2),
    }  # fmt: skip
    assert config.training_of_system("other").learning_rate == 0.01


def test_a_rate_is_not_named_twice() -> None:
    with pytest.raises(ValueError, match="names a rate twice"):
        FitConfig(learning_rates=(0.001, 1e-3))


def test_without_a_search_the_result_has_the_rate_alone() -> None:
    assert Trained(FitEnd(1, None, stopped=False), 0.001).result_values() == {"learning_rate": 0.001}
