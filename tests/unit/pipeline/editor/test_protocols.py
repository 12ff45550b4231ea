"""What the server answers is what the model answers, in the form of each protocol."""

import json
import math
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from pretrain.inference.sampling import Sampling
from tests.unit.pipeline.editor.conftest import CODE, SEGMENT, Server

PREFIX, SUFFIX = CODE[:60], CODE[60:120]
LONG = CODE * 3


def infilled(server: Server, prefix: str, suffix: str, tokens: int) -> str:
    return server.lm.infill(prefix, suffix, max_new_tokens=tokens)[0].text


def test_infill_is_the_models_own_answer_alone_and_beside_others(server: Server) -> None:
    bodies = [
        {"input_prefix": LONG[: 40 * number], "input_suffix": LONG[40 * number :], "n_predict": 5 + number}
        for number in range(9)
    ]
    expected = [
        infilled(server, body["input_prefix"], body["input_suffix"], body["n_predict"]) for body in bodies
    ]
    assert [server.post("/infill", body)["content"] for body in bodies] == expected
    before = server.worker.num_passes
    with ThreadPoolExecutor(9) as pool:
        answers = list(pool.map(lambda body: server.post("/infill", body), bodies))
    assert [answer["content"] for answer in answers] == expected
    assert server.worker.num_passes - before < sum(answer["tokens_predicted"] for answer in answers)


def test_infill_takes_the_line_before_the_cursor_and_cuts_what_does_not_fit(server: Server) -> None:
    answer = server.post(
        "/infill", {"input_prefix": "x = 1\n", "prompt": "y = ", "input_suffix": "\n", "n_predict": 1000}
    )
    assert answer["content"] == infilled(server, "x = 1\ny = ", "\n", SEGMENT // 2)
    assert answer["truncated"] is False
    assert answer["stop_type"] in ("eos", "limit")
    assert server.post("/infill", {"input_prefix": LONG, "n_predict": 3})["truncated"] is True


def test_infill_gives_the_fields_that_are_asked_for(server: Server) -> None:
    body = {"input_prefix": PREFIX, "input_suffix": SUFFIX, "n_predict": 4}
    wanted = ["content", "timings/predicted_n", "timings/prompt_ms", "tokens_cached", "nothing", "a/b"]
    answer = server.post("/infill", {**body, "response_fields": wanted})
    assert set(answer) == {"content", "timings/predicted_n", "timings/prompt_ms", "tokens_cached"}
    assert answer["timings/predicted_n"] <= 4
    assert server.post("/infill", {**body, "n_predict": 0, "response_fields": [""]}) == {}


def test_infill_of_a_longer_text_reads_only_what_is_new(server: Server) -> None:
    first = {"input_prefix": "# one\n" + LONG, "input_suffix": SUFFIX, "n_predict": 4}
    longer = {**first, "input_prefix": first["input_prefix"] + "x"}
    server.post("/infill", first)
    answer = server.post("/infill", longer)
    assert answer["tokens_cached"] > 0
    assert answer["timings"]["prompt_n"] == answer["tokens_evaluated"] - answer["tokens_cached"]
    assert answer["content"] == infilled(server, longer["input_prefix"], SUFFIX, 4)
    assert server.post("/infill", {**longer, "cache_prompt": False})["tokens_cached"] == 0


def test_infill_reads_text_of_other_files_before_the_text(server: Server) -> None:
    body = {"input_prefix": "x = ", "input_suffix": "\n", "n_predict": 20}
    others = [{"filename": "a.py", "text": LONG[:200]}, {"text": "x = 1\n" * 20}, {"text": ""}]
    alone = server.post("/infill", body)
    answer = server.post("/infill", {**body, "input_extra": others})
    num_tokens = [1 + len(server.lm.tokenizer.encode(one["text"])) for one in others[:2]]
    assert answer["tokens_evaluated"] == alone["tokens_evaluated"] + sum(num_tokens)
    assert answer["content"] != alone["content"]
    again = server.post("/infill", {**body, "input_extra": others})
    assert again["content"] == answer["content"]
    assert again["tokens_cached"] > 0
    assert server.post("/infill", {**body, "input_extra": []})["content"] == alone["content"]


def test_infill_streams(server: Server) -> None:
    body = {"input_prefix": PREFIX, "input_suffix": SUFFIX, "n_predict": 6}
    *texts, last = server.events("/infill", body)
    assert "".join(one["content"] for one in texts) == infilled(server, PREFIX, SUFFIX, 6)
    assert [one["stop"] for one in texts] == [False] * len(texts)
    assert last["stop"] is True
    assert last["content"] == ""


def test_infill_keeps_its_time_limit(server: Server) -> None:
    body = {"input_prefix": PREFIX, "input_suffix": SUFFIX, "n_predict": 20, "t_max_predict_ms": 0.001}
    answer = server.post("/infill", body)
    assert answer["tokens_predicted"] <= 1
    assert answer["stop_type"] in ("limit", "eos")


def test_completion_is_the_models_own_answer(server: Server) -> None:
    answer = server.post("/v1/completions", {"prompt": PREFIX, "temperature": 0})
    expected = server.lm.complete(PREFIX, max_new_tokens=16)[0]
    (choice,) = answer["choices"]
    assert choice["text"] == expected.text
    assert choice["finish_reason"] == ("length" if expected.finish == "length" else "stop")
    assert choice["logprobs"] is None
    assert answer["object"] == "text_completion"
    assert answer["usage"]["completion_tokens"] == expected.num_tokens
    assert answer["usage"]["total_tokens"] == expected.num_tokens + answer["usage"]["prompt_tokens"]


def test_completion_samples_as_the_model_does_for_every_prompt(server: Server) -> None:
    body = {"prompt": [PREFIX, "x = "], "n": 3, "max_tokens": 9, "temperature": 0.9, "top_p": 0.9, "seed": 7}
    answer = server.post("/v1/completions", body)
    sampling = Sampling(0.9, None, 0.9, 7)
    expected = [
        one.text
        for prompt in body["prompt"]
        for one in server.lm.complete(prompt, max_new_tokens=9, sampling=sampling, num_samples=3)
    ]
    assert [one["text"] for one in answer["choices"]] == expected
    assert [one["index"] for one in answer["choices"]] == list(range(6))
    assert len(set(expected)) > 2


def test_token_ids_are_the_text_that_they_spell(server: Server) -> None:
    ids = [server.lm.tokenizer.encode(text).tolist() for text in (PREFIX, "x = \u20ac")]
    forms = {
        "texts": [PREFIX, "x = \u20ac"],
        "ids": ids,
        "mixed": [[PREFIX[:7], *server.lm.tokenizer.encode(PREFIX[7:]).tolist()], [*ids[1][:-1], ids[1][-1]]],
    }
    options = {"max_tokens": 5, "temperature": 0, "echo": True, "logprobs": 1}
    answers = [server.post("/v1/completions", {**options, "prompt": one}) for one in forms.values()]
    for answer in answers[1:]:
        assert (answer["choices"], answer["usage"]) == (answers[0]["choices"], answers[0]["usage"])
    assert answers[0]["usage"]["prompt_tokens"] == sum(map(len, ids)) + 2  # each with an <eod> before it
    (alone,) = server.post("/v1/completions", {**options, "prompt": ids[0]})["choices"]
    assert alone["text"] == answers[0]["choices"][0]["text"]
    (alone,) = server.post("/v1/completions", {**options, "prompt": [PREFIX[:7], *ids[1]]})["choices"]
    assert alone["text"].startswith(PREFIX[:7] + "x = \u20ac")
    body = {"input_prefix": "a = 1\n", "input_suffix": SUFFIX, "n_predict": 5}
    expected = server.post("/infill", {**body, "prompt": PREFIX})["content"]
    assert server.post("/infill", {**body, "prompt": ids[0]})["content"] == expected
    assert server.post("/infill", {**body, "prompt": ["", PREFIX[:9], PREFIX[9:]]})["content"] == expected


def test_half_a_character_in_ids_is_read_and_shown_as_such(server: Server) -> None:
    whole = server.lm.tokenizer.encode("x = \u20ac").tolist()
    half = server.lm.tokenizer.decode_bytes(whole[:-1])
    assert half.decode(errors="ignore").encode() != half
    options = {"max_tokens": 3, "temperature": 0, "logprobs": 0}
    (shown,) = server.post("/v1/completions", {**options, "prompt": whole[:-1], "echo": True})["choices"]
    assert shown["text"].startswith("x = \ufffd")
    (plain,) = server.post("/v1/completions", {**options, "prompt": whole[:-1]})["choices"]
    assert plain["text"] == server.lm.complete(half, max_new_tokens=3)[0].text
    assert plain["logprobs"]["text_offset"][0] == len("x = \ufffd")


def test_completion_with_a_suffix_fills_the_hole(server: Server) -> None:
    body = {"prompt": PREFIX, "suffix": SUFFIX, "max_tokens": 10, "temperature": 0}
    (choice,) = server.post("/v1/completions", body)["choices"]
    assert choice["text"] == infilled(server, PREFIX, SUFFIX, 10)
    assert choice["text"] != server.lm.complete(PREFIX, max_new_tokens=10)[0].text
    (echoed,) = server.post("/v1/completions", {**body, "echo": True})["choices"]
    assert echoed["text"] == PREFIX + choice["text"]


def test_completion_stops_before_a_stop_text(server: Server) -> None:
    whole = server.lm.complete(PREFIX, max_new_tokens=16)[0].text
    printable = [character for character in whole if character != "\ufffd"]
    stop = printable[len(printable) // 2]
    body = {"prompt": PREFIX, "temperature": 0, "stop": stop, "logprobs": 0}
    (choice,) = server.post("/v1/completions", body)["choices"]
    assert choice["text"] == whole[: whole.index(stop)]
    assert choice["finish_reason"] == "stop"


def test_log_probabilities_are_the_models(server: Server) -> None:
    body = {"prompt": PREFIX, "max_tokens": 6, "temperature": 0, "logprobs": 3, "echo": True}
    (choice,) = server.post("/v1/completions", body)["choices"]
    logprobs, (scored,) = choice["logprobs"], server.lm.score(PREFIX)
    num_scored = len(scored.token_P)
    assert logprobs["token_logprobs"][:num_scored] == pytest.approx(scored.scores.log_probability_P.tolist())
    new = server.lm.complete(PREFIX, max_new_tokens=6)[0]
    if new.finish == "length":
        assert math.fsum(logprobs["token_logprobs"][num_scored:]) == pytest.approx(new.log_likelihood)
    assert len(logprobs["tokens"]) == len(logprobs["text_offset"]) == num_scored + new.num_tokens
    for top, score in zip(
        logprobs["top_logprobs"][num_scored:], logprobs["token_logprobs"][num_scored:], strict=True
    ):
        assert max(top.values()) == pytest.approx(score)
    for top, score in zip(logprobs["top_logprobs"][:num_scored], logprobs["token_logprobs"], strict=False):
        assert 1 <= len(top) <= 3  # tokens without a text are one entry
        assert max(top.values()) >= score - 1e-12
    assert any(len(top) == 3 for top in logprobs["top_logprobs"][:num_scored])
    for token, offset in zip(logprobs["tokens"][:num_scored], logprobs["text_offset"], strict=False):
        assert PREFIX[offset:].startswith(token)


def test_echo_without_new_tokens_scores_a_text(server: Server) -> None:
    body = {"prompt": CODE, "max_tokens": 0, "logprobs": 0, "echo": True}
    (choice,) = server.post("/v1/completions", body)["choices"]
    assert choice["text"] == CODE
    (scored,) = server.lm.score(CODE)
    assert math.fsum(choice["logprobs"]["token_logprobs"]) == pytest.approx(scored.scores.log_likelihood)


@pytest.mark.parametrize("suffix", [None, SUFFIX])
def test_completion_streams_what_it_returns(server: Server, suffix: str | None) -> None:
    body: dict[str, Any] = {
        "prompt": ["a = ", PREFIX],
        "suffix": suffix,
        "n": 2,
        "max_tokens": 12,
        "seed": 3,
        "logprobs": 1,
        "echo": True,
    }
    whole = server.post("/v1/completions", body)
    *events, usage, done = server.events(
        "/v1/completions", {**body, "stream_options": {"include_usage": True}}
    )
    assert done == "[DONE]"
    assert usage["choices"] == []
    assert usage["usage"] == whole["usage"]
    for choice in whole["choices"]:
        own = [one["choices"][0] for one in events if one["choices"][0]["index"] == choice["index"]]
        assert "".join(one["text"] for one in own) == choice["text"]
        assert [one["finish_reason"] for one in own] == [None] * (len(own) - 1) + [choice["finish_reason"]]
        for name in ("tokens", "token_logprobs"):
            parts = [one["logprobs"][name] for one in own if one["logprobs"]]
            assert [value for part in parts for value in part] == choice["logprobs"][name]
    if suffix is None:
        assert len(events) > 3 * len(whole["choices"])


def test_tabby_is_told_apart_by_its_segments(server: Server) -> None:
    body = {"language": "python", "segments": {"prefix": PREFIX, "suffix": SUFFIX, "filepath": "a.py"}}
    (choice,) = server.post("/v1/completions", body)["choices"]
    assert choice == {"index": 0, "text": infilled(server, PREFIX, SUFFIX, SEGMENT // 2)}
    body = {"segments": {"prefix": PREFIX}, "temperature": 0}
    (choice,) = server.post("/v1/completions", body)["choices"]
    assert choice["text"] == server.lm.complete(PREFIX, max_new_tokens=64)[0].text


def test_health_properties_and_models(server: Server) -> None:
    for path in ("/health", "/v1/health"):
        assert server.ask("GET", path)[1]["status"] == "ok"
    assert server.ask("GET", "/props")[1]["default_generation_settings"]["n_ctx"] == SEGMENT + 32
    assert [one["id"] for one in server.ask("GET", "/v1/models")[1]["data"]] == ["tiny"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_gets_an_answer(server: Server) -> None:
    body = {"input_prefix": PREFIX, "input_suffix": SUFFIX, "n_predict": 6}
    found = subprocess.run(
        ["curl", "--silent", "--noproxy", "*", f"http://127.0.0.1:{server.port}/infill", "--data", "@-"],
        input=json.dumps(body),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert json.loads(found.stdout)["content"] == infilled(server, PREFIX, SUFFIX, 6)


def test_the_openai_package_gets_answers(server: Server) -> None:
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none")
    options = {"model": "tiny", "prompt": PREFIX, "suffix": SUFFIX, "max_tokens": 8, "temperature": 0}
    expected = infilled(server, PREFIX, SUFFIX, 8)
    answer = client.completions.create(**options, logprobs=2)
    assert answer.choices[0].text == expected
    assert len(answer.choices[0].logprobs.tokens) == answer.usage.completion_tokens
    chunks = list(client.completions.create(**options, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == expected
    ids = server.lm.tokenizer.encode(PREFIX).tolist()
    assert client.completions.create(**{**options, "prompt": ids}).choices[0].text == expected
    assert [one.id for one in client.models.list()] == ["tiny"]
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.completions.create(**{**options, "temperature": -1})
