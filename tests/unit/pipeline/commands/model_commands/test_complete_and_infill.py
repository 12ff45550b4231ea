"""complete and infill from the command line."""

import os
from pathlib import Path
from typing import Any

import pytest

from pretrain.inference.language_model import PermutationLM
from pretrain.inference.results import Completion
from pretrain.inference.sampling import Sampling
from tests.unit.pipeline.commands.model_commands.command import CODE, SEGMENT, permcode


def test_complete_writes_the_new_text_alone_and_the_seed_decides_it(model: Path) -> None:
    texts = [permcode("complete", model, "def add", "--max-tokens", 12, "--seed", seed) for seed in (0, 0, 1)]
    assert all(text.exit_code == 0 for text in texts), texts[0].stderr
    assert texts[0].stdout_bytes == texts[1].stdout_bytes != texts[2].stdout_bytes
    expected = PermutationLM.from_run(model).complete("def add", max_new_tokens=12)[0].data
    assert (
        permcode("complete", model, "def add", "--max-tokens", 12, "--temperature", 0).stdout_bytes
        == expected
    )
    echoed = permcode("complete", model, "def add", "--max-tokens", 12, "--temperature", 0, "--echo")
    assert echoed.stdout_bytes == b"def add" + expected


def test_prompts_come_from_standard_input_and_from_files_whatever_their_bytes(
    model: Path, tmp_path: Path
) -> None:
    odd = b"x = '\xff\xfe'\r\n"
    (tmp_path / "odd").write_bytes(odd)
    options = ("--max-tokens", 6, "--temperature", 0)
    from_file = permcode("complete", model, "--file", tmp_path / "odd", *options)
    from_stdin = permcode("complete", model, "-", *options, stdin=odd)
    assert from_file.exit_code == 0, from_file.stderr
    assert from_file.stdout_bytes == from_stdin.stdout_bytes
    assert from_file.stdout_bytes == PermutationLM.from_run(model).complete(odd, max_new_tokens=6)[0].data


def test_several_texts_have_a_line_before_each(model: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"def {name}")
    files = ("--file", tmp_path / "a", "--file", tmp_path / "b")
    text = permcode("complete", model, *files, "--num", 2, "--max-tokens", 3).stdout
    for name in ("a", "b"):
        for number in (1, 2):
            assert f"==> {tmp_path / name}, {number} of 2 <==\n" in text
    text = permcode("complete", model, "def a", "--num", 2, "--max-tokens", 3).stdout
    assert text.startswith("==> 1 of 2 <==\n")
    assert "\n==> 2 of 2 <==\n" in text


def test_many_texts_are_written_while_others_are_still_to_be_sampled(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"def {name}")
    files = ("--file", tmp_path / "a", "--file", tmp_path / "b", "--max-tokens", 3)
    sampled: list[int] = []
    complete = PermutationLM.complete

    def counted(self: PermutationLM, *prompts: list[bytes], **options: Any) -> list[Completion]:
        sampled.append(options["num_samples"])
        if len(sampled) > 4:
            raise KeyboardInterrupt
        return complete(self, *prompts, **options)

    monkeypatch.setattr(PermutationLM, "complete", counted)
    cut = permcode("complete", model, *files, "--num", 1_000_000)
    assert sampled == [16] * 5
    assert cut.exit_code == 130
    assert cut.stdout.count("==> ") == 48
    assert f"==> {tmp_path / 'a'}, 48 of 1000000 <==" in cut.stdout
    monkeypatch.undo()
    few = permcode("complete", model, *files, "--num", 20).stdout
    expected = PermutationLM.from_run(model).complete(
        ["def a", "def b"], max_new_tokens=3, sampling=Sampling(0.8), num_samples=20
    )
    texts = [f"==> {tmp_path / name}, {number} of 20 <==\n" for name in ("a", "b") for number in range(1, 21)]
    assert [few.index(text) for text in texts] == sorted(few.index(text) for text in texts)
    for text, one in zip(texts, expected, strict=True):
        assert text + one.text in few


def test_a_completion_ends_before_a_stop_text(model: Path) -> None:
    options = ("--max-tokens", 60, "--temperature", 1.5)
    whole = permcode("complete", model, "def", *options).stdout_bytes
    assert b"\n" in whole
    line = permcode("complete", model, "def", *options, "--until-line").stdout_bytes
    assert line == whole.split(b"\n")[0]
    character = whole[5:6].decode()
    stopped = permcode("complete", model, "def", *options, "--stop", character).stdout_bytes
    assert stopped == whole.split(whole[5:6])[0]


def test_a_stop_text_may_be_any_bytes(model: Path) -> None:
    options = ("--max-tokens", 60, "--temperature", 3, "--seed", 1)
    whole = permcode("complete", model, "def", *options).stdout_bytes
    byte = next(bytes([value]) for value in whole if value >= 128)
    found = permcode("complete", model, "def", *options, "--stop", os.fsdecode(byte))
    assert found.exit_code == 0
    assert found.stdout_bytes == whole.split(byte)[0]


def test_a_beam_writes_the_best_texts_it_finds(model: Path, file: Path) -> None:
    lm = PermutationLM.from_run(model)
    best = lm.complete("def", max_new_tokens=5, beam=3, num_samples=2)
    options = ("--max-tokens", 5, "--beam", 3, "--num", 2)
    written = permcode("complete", model, "def", *options)
    assert written.exit_code == 0, written.stderr
    for number, one in enumerate(best, start=1):
        assert f"==> {number} of 2 <==\n".encode() + one.data in written.stdout_bytes
    (file.parent / "b").write_bytes(b"x =")
    both = permcode("complete", model, "--file", file, "--file", file.parent / "b", *options)
    assert both.stdout_bytes.count(b" of 2 <==\n") == 4


def test_infill_fills_the_hole_and_the_file_stays_as_it_is(model: Path, file: Path) -> None:
    start = CODE.encode().index(b"second  # ")
    prefix, suffix = CODE.encode()[:start], CODE.encode()[start:]
    lm = PermutationLM.from_run(model)
    at = ("--at", f"2:{len('    return first + ') + 1}")
    unknown = permcode("infill", model, file, *at, "--max-tokens", 9)
    assert unknown.exit_code == 0, unknown.stderr
    assert unknown.stdout_bytes == lm.infill(prefix, suffix, max_new_tokens=9)[0].data
    unsaid = permcode("infill", model, file, *at).stdout_bytes
    assert unsaid == lm.infill(prefix, suffix, max_new_tokens=SEGMENT // 2)[0].data
    known = permcode("infill", model, file, *at, "--length", 4).stdout_bytes
    assert known == lm.infill(prefix, suffix, length=4)[0].data
    marked = file.with_name("marked.py")
    marked.write_bytes(prefix + b"<hole>" + suffix)
    assert permcode("infill", model, marked, "--length", 4).stdout_bytes == known
    assert permcode("infill", model, marked, "--length", 4, "--whole").stdout_bytes == prefix + known + suffix
    assert permcode("infill", model, "-", "--length", 4, stdin=marked.read_bytes()).stdout_bytes == known
    assert (file.read_bytes(), marked.read_bytes()) == (prefix + suffix, prefix + b"<hole>" + suffix)


def test_infill_chooses_the_most_certain_tokens_first_several_at_once(model: Path, file: Path) -> None:
    lm = PermutationLM.from_run(model)
    prefix, suffix = CODE.encode()[:4], CODE.encode()[4:]
    expected = lm.infill(prefix, suffix, length=6, order="most_certain", at_once=3)[0].data
    options = ("--at", "1:5", "--length", 6, "--order", "most_certain", "--at-once", 3)
    assert permcode("infill", model, file, *options).stdout_bytes == expected


def test_infill_draws_and_searches_as_complete_does(model: Path, file: Path) -> None:
    lm = PermutationLM.from_run(model)
    prefix, suffix = CODE.encode()[:4], CODE.encode()[4:]
    sampled = lm.infill(prefix, suffix, max_new_tokens=7, sampling=Sampling(1.0, 50, 0.9, 3), num_samples=2)
    options = ("--temperature", 1, "--top-k", 50, "--top-p", 0.9, "--seed", 3)
    written = permcode(
        "infill", model, file, "--at", "1:5", "--max-tokens", 7, "--num", 2, *options
    ).stdout_bytes
    assert written.startswith(b"==> 1 of 2 <==\n" + sampled[0].data)
    assert b"\n==> 2 of 2 <==\n" + sampled[1].data in written
    beam = permcode("infill", model, file, "--at", "1:5", "--max-tokens", 7, "--beam", 3).stdout_bytes
    assert beam == lm.infill(prefix, suffix, max_new_tokens=7, beam=3)[0].data
