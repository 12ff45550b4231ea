"""Data that cannot be used, as a worker meets it: one line that says what, where, and what to do."""

from pathlib import Path
from typing import Any

import pytest
import torch

from cluster.errors import UserError
from data_prep.finished.prepared import PreparedCorpus
from finetune.experiment.config import ExperimentConfig
from finetune.experiment.job import Job
from finetune.experiment.jobs import JobContext

_WRITER = {"kind": "permutation_lm", "source_tokens": 8, "target_tokens": 4}
_SYSTEMS: dict[str, dict[str, Any]] = {
    "translation": _WRITER,
    "generation": _WRITER,
    "line_completion": _WRITER,
    "infilling": _WRITER,
    "repair": _WRITER,
    "defect": {"kind": "classifier"},
    "cloze": {"kind": "zero_shot_cloze"},
    "clone_pairs": {"kind": "classifier"},
    "clone_retrieval": {"kind": "bi_encoder"},
    "code_search": {"kind": "bi_encoder"},
    "text_search": {"kind": "bi_encoder"},
}
_SIDES = {"source": "old", "target": "new", "train": "ok.{side}", "valid": "ok.{side}", "test": "ok.{side}"}
_FUNCS = {"train": "ok.jsonl", "valid": "ok.jsonl", "test": "ok.jsonl"}
_FILES = {
    "ok.old": b"a b\nc d\n",
    "ok.new": b"b a\nd c\n",
    "short.old": b"a b\nc d\n",
    "short.new": b"b a\n",
    "empty.old": b"",
    "empty.new": b"",
    "blank.old": b"\n\n",
    "blank.new": b"\n\n",
    "bytes.old": b"\xff\xfe\x00",
    "bytes.new": b"\xff\xfe\x00",
    "ok.jsonl": b'{"func": "a", "target": 0}\n{"func": "b", "target": 1}\n',
    "label.jsonl": b'{"func": "a", "target": 2}\n',
    "negative.jsonl": b'{"func": "a", "target": -1}\n',
    "word.jsonl": b'{"func": "a", "target": "bad"}\n',
    "number.jsonl": b'{"nl": "a", "code": 5}\n',
    "withheld.jsonl": b'{"nl": "a", "code": ""}\n',
    "withheld.json": b'{"input": "<s> a", "gt": ""}\n',
    "parquet.jsonl": b"PAR1junk",
    "array.json": b"[1, 2",
    "alone.jsonl": b'{"label": "1", "code": "a"}\n{"label": "2", "code": "b"}\n',
    "items.json": b'[{"idx": "1", "nl_tokens": ["a"], "pl_tokens": ["<mask>", "b"]}]',
    "answers.txt": b"1<CODESPLIT>sum\n",
    "others.txt": b"2<CODESPLIT>max\n",
    "lines.txt": b"neither JSON nor anything\n",
}


@pytest.mark.parametrize(
    ("task", "reported"),
    [
        ({"kind": "translation", **_SIDES, "train": "short.{side}"}, r"short.old has 2 lines.*short.new has 1"),
        ({"kind": "translation", **_SIDES, "train": "empty.{side}"}, "empty.old is empty"),
        ({"kind": "translation", **_SIDES, "valid": "empty.{side}"}, "empty.old is empty"),
        ({"kind": "translation", **_SIDES, "test": "blank.{side}"}, "blank.old is empty"),
        ({"kind": "translation", **_SIDES, "test": "bytes.{side}"}, "bytes.old is not UTF-8"),
        ({"kind": "translation", **_SIDES, "test": "nowhere.{side}"}, "nowhere.old"),
        ({"kind": "translation", **_SIDES, "target": "old"}, "source and target are both 'old'"),
        ({"kind": "translation", **_SIDES, "train": "ok.jsonl"}, "has no field 'old'; it has func, target"),
        ({"kind": "translation", **_SIDES, "train": "parquet.jsonl"}, "parquet.jsonl is not a Parquet file"),
        ({"kind": "translation", **_SIDES, "train": "array.json"}, "array.json is not JSON"),
        ({"kind": "generation", "train": "number.jsonl"}, "field 'code' must be a text or a list of tokens"),
        ({"kind": "generation", "train": None, "test": "withheld.jsonl"}, "its labels are withheld"),
        ({"kind": "line_completion", "test": "ok.jsonl"}, "has no field 'input'; it has func, target"),
        ({"kind": "line_completion", "test": "withheld.json"}, r"withheld.json: 1 of 1 .* labels are withheld"),
        ({"kind": "infilling", "language": "Cobol"}, "no Cobol document"),
        ({"kind": "repair", **_SIDES, "bugs": {"functions": "empty.old"}}, "empty.old is empty"),
        ({"kind": "defect", **_FUNCS, "train": "label.jsonl"}, "the label is 2, but labels are 0 to 1"),
        ({"kind": "defect", **_FUNCS, "test": "negative.jsonl"}, "the label is -1, but labels are 0 to 1"),
        ({"kind": "defect", **_FUNCS, "valid": "word.jsonl"}, "the label is 'bad', but labels are 0 to 1"),
        ({"kind": "defect", **_FUNCS, "train": "ok.old"}, "ok.old line 1 is not JSON"),
        ({"kind": "cloze", "items": "items.json"}, "items.json has no answers"),
        ({"kind": "cloze", "items": "items.json", "answers": "answers.txt"}, "with a word of max, min"),
        ({"kind": "cloze", "items": "items.json", "answers": "others.txt"}, "has no answer for 1"),
        ({"kind": "cloze", "words": ["nowhere_said", "nor_this"]}, "has none of the words nowhere_said, nor_this"),
        ({"kind": "clone_pairs", **_SIDES, "test": "short.{side}"}, "short.old has 2 lines"),
        ({"kind": "clone_pairs", **_FUNCS, "codes": "ok.jsonl"}, "has no field 'idx'"),
        ({"kind": "clone_retrieval", "train": "alone.jsonl"}, "no program of the valid split has another"),
        ({"kind": "clone_retrieval", "train": "alone.jsonl", "test": "alone.jsonl"}, "name these"),
        ({"kind": "code_search", **_SIDES, "test": "short.{side}"}, "short.old has 2 lines"),
        ({"kind": "text_search", "test": "ok.jsonl"}, "has no field 'query'; it has func, target"),
        ({"kind": "text_search", "test": "lines.txt", "base": "lines.txt"}, "lines.txt is not JSON"),
    ],
)  # fmt: skip
def test_data_that_cannot_be_used_is_reported_in_one_line(
    tmp_path: Path, pretrain_folder: Path, corpus: PreparedCorpus, task: dict[str, Any], reported: str
) -> None:
    for name, data in _FILES.items():
        (tmp_path / name).write_bytes(data)
    system = _SYSTEMS[task["kind"]] | ({"words": task["words"]} if "words" in task else {})
    config = ExperimentConfig.model_validate({"task": _in_folder(task, tmp_path), "systems": {"own": system}})
    job = Job("own", 0, tmp_path / "job")
    with pytest.raises(UserError, match=reported) as caught:
        JobContext.open(config, pretrain_folder, corpus.folder, torch.device("cpu")).build(job)
    assert "\n" not in str(caught.value)
    assert not job.folder.exists()


def _in_folder(task: dict[str, Any], folder: Path) -> dict[str, Any]:
    """With full paths where a task wants them, and the folder where it reads files of one."""
    task = dict(task)
    for key in ("items", "answers"):
        if key in task:
            task[key] = str(folder / task[key])
    if "bugs" in task:
        task["bugs"] = {"functions": str(folder / task["bugs"]["functions"])}
    return task if task["kind"] in ("cloze", "infilling") else {"folder": str(folder), **task}


@pytest.mark.parametrize("words", [["max", "max"], ["", "max"], ["max"]])
def test_the_words_of_a_cloze_differ(words: list[str]) -> None:
    with pytest.raises(ValueError, match="words"):
        ExperimentConfig.model_validate(
            {"task": {"kind": "cloze", "words": words}, "systems": {"own": {"kind": "zero_shot_cloze"}}}
        )


def test_a_model_without_a_tokenizer_of_its_own_is_refused(tmp_path: Path, pretrain_folder: Path) -> None:
    config = ExperimentConfig.model_validate({"task": {"kind": "infilling"}, "systems": {"own": _WRITER}})
    model = tmp_path / "model"
    model.mkdir()
    for path in (pretrain_folder / "model").iterdir():
        (model / path.name).write_bytes(path.read_bytes())
    (model / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match=r"tokenizer\.json"):
        JobContext.open(config, model, None, torch.device("cpu"))
    (model / "tokenizer.json").unlink()
    with pytest.raises(UserError, match="tokenizer"):
        JobContext.open(config, model, None, torch.device("cpu"))


def test_every_system_is_tried_before_the_first_is_trained(
    tmp_path: Path, pretrain_folder: Path, corpus: PreparedCorpus
) -> None:
    classifier = {"kind": "classifier"}
    late = {"kind": "zero_shot_cloze", "words": ["max", "min", "sum"]}
    for task, systems, reported in (
        ({"kind": "defect", "folder": str(tmp_path), **_FUNCS}, {"own": classifier, "late": late}, "has 3 words"),
        ({"kind": "cloze", **_in_folder({"items": "items.json", "answers": "right.txt", "kind": "cloze"}, tmp_path)},
         {"own": classifier}, "system own has no training data"),
    ):  # fmt: skip
        for name in ("items.json", "ok.jsonl"):
            (tmp_path / name).write_bytes(_FILES[name])
        (tmp_path / "right.txt").write_text("1<CODESPLIT>max\n")
        config = ExperimentConfig.model_validate({"task": task, "systems": systems})
        context = JobContext.open(config, pretrain_folder, corpus.folder, torch.device("cpu"))
        jobs = [Job(name, seed, tmp_path / name / str(seed)) for name in systems for seed in (0, 1)]
        with pytest.raises(UserError, match=reported):
            context.check(jobs)
        assert not any(job.folder.exists() for job in jobs)
