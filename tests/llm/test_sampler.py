import math
from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest

from aspira.contracts.generation import MIN_LOGPROB, SamplingParameters
from aspira.llm.sampler import DrawnToken, RowFault, Sampler, SamplingRow, token_logprob
from aspira.llm.token_history import TokenHistory

GREEDY = SamplingParameters(temperature=0.0)
Logits = npt.NDArray[np.float32]


def make_logits(*rows: list[float]) -> Logits:
    return np.array(rows, np.float32)


def row(parameters: SamplingParameters = GREEDY, **changes: object) -> SamplingRow:
    return SamplingRow(parameters, seed=(1, 0), position=0)._replace(**changes)


def sample_one(logits: list[float], sampling: SamplingRow) -> DrawnToken | RowFault:
    (drawn,) = Sampler().sample(make_logits(logits), rows=[sampling])
    return drawn


def test_greedy_takes_the_largest_and_the_first_among_equals() -> None:
    logits = make_logits([0, 3, 1], [2, 0, 2])
    drawn = Sampler().sample(logits, rows=[row(), row()])
    assert drawn == [DrawnToken(1), DrawnToken(0)]


def test_no_rows_are_no_tokens() -> None:
    assert Sampler().sample(np.empty((0, 5), np.float32), rows=[]) == []


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_no_number_fails_its_own_row_only(bad: float) -> None:
    logits = make_logits([0, 1, 2], [0, bad, 2], [2, 1, 0])
    drawn = Sampler().sample(logits, rows=[row(), row(), row(SamplingParameters())])
    assert drawn[0] == DrawnToken(2)
    assert drawn[1] is RowFault.NOT_NUMBERS
    assert isinstance(drawn[2], DrawnToken)


def test_a_row_without_any_possible_token_fails() -> None:
    assert sample_one([-math.inf] * 3, row()) is RowFault.NOT_NUMBERS


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"banned": (2,)}, id="banned"),
        pytest.param({"allowed": np.array([0b11011], np.uint8)}, id="grammar"),
        pytest.param(
            {"parameters": SamplingParameters(temperature=0.0, logit_bias=((2, -100.0),))},
            id="bias against",
        ),
        pytest.param(
            {"parameters": SamplingParameters(temperature=0.0, logit_bias=((1, 5.0),))},
            id="bias for",
        ),
    ],
)
def test_what_is_adjusted_changes_the_choice(changes: dict[str, object]) -> None:
    logits = [0.0, 1.0, 2.0, 0.0, 0.0]
    assert sample_one(logits, row()) == DrawnToken(2)
    assert sample_one(logits, row(**changes)) == DrawnToken(1)


def test_a_mask_spans_bytes() -> None:
    allowed = np.packbits(np.arange(20) == 17, bitorder="little")
    assert sample_one([1.0] * 20, row(allowed=allowed)) == DrawnToken(17)


def test_a_grammar_that_allows_nothing_is_told_from_bad_logits() -> None:
    fault = sample_one([0.0, 1.0], row(allowed=np.zeros(1, np.uint8)))
    assert fault is RowFault.NOTHING_ALLOWED


def test_the_logits_are_left_as_they_are() -> None:
    logits = make_logits([0, 1, 2])
    before = logits.copy()
    Sampler().sample(logits, rows=[row(SamplingParameters(logit_bias=((0, 9.0),)), banned=(2,))])
    assert np.array_equal(logits, before)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        pytest.param({"repetition_penalty": 2.0}, [2.0, -2.0, 0.5, 4.0], id="repetition"),
        pytest.param({"frequency_penalty": 0.5}, [4.0, -2.0, 1.0, 4.0], id="frequency"),
        pytest.param({"presence_penalty": 0.5}, [4.0, -1.5, 1.0, 4.0], id="presence"),
        pytest.param(
            {"repetition_penalty": 2.0, "frequency_penalty": 1.0, "presence_penalty": 1.0},
            [2.0, -5.0, 0.5, 4.0],
            id="all",
        ),
    ],
)
def test_penalties(parameters: dict[str, float], expected: list[float]) -> None:
    """Token 0 and 2 are in the prompt, token 1 is twice in the output, token 3 nowhere."""
    history = TokenHistory([0, 2])
    history.add(1)
    history.add(1)
    logits = np.array([4.0, -1.0, 1.0, 4.0], np.float32)
    history.penalize(logits, parameters=SamplingParameters(**parameters))
    assert logits.tolist() == expected


@pytest.mark.parametrize("prompt", [[0, 2, 0], [0, 2], []])
def test_a_token_is_penalized_once_wherever_it_was_seen(prompt: list[int]) -> None:
    history = TokenHistory(prompt)
    for token in (0, 2, 0):
        history.add(token)
    logits = np.array([4.0, -1.0, -1.0], np.float32)
    history.penalize(logits, parameters=SamplingParameters(repetition_penalty=2.0))
    assert logits.tolist() == [2.0, -1.0, -2.0]


def test_log_probabilities_are_the_models_own() -> None:
    parameters = SamplingParameters(temperature=0.0, num_logprobs=2, logit_bias=((0, 50.0),))
    drawn = sample_one([0.0, math.log(3), -math.inf], row(parameters))
    assert isinstance(drawn, DrawnToken)
    assert drawn.logprob is not None
    assert (drawn.token_id, drawn.logprob.token_id) == (0, 0)
    assert drawn.logprob.logprob == pytest.approx(math.log(1 / 4))
    assert [token for token, _ in drawn.logprob.alternatives] == [1, 0]
    assert drawn.logprob.alternatives[0][1] == pytest.approx(math.log(3 / 4))


def test_log_probabilities_are_finite() -> None:
    logprob = token_logprob(np.array([0, -math.inf], np.float32), token_id=1, count=2)
    assert logprob.logprob == MIN_LOGPROB
    assert logprob.alternatives == ((0, 0.0), (1, MIN_LOGPROB))


def test_zero_alternatives_report_the_drawn_token() -> None:
    drawn = sample_one([0.0, 0.0], row(SamplingParameters(temperature=0.0, num_logprobs=0)))
    assert isinstance(drawn, DrawnToken)
    assert drawn.logprob is not None
    assert drawn.logprob.alternatives == ()


def test_a_seed_draws_the_same_whatever_the_batch() -> None:
    parameters = SamplingParameters(top_p=0.9)
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((16, 5000)).astype(np.float32)
    rows = [row(parameters, seed=(i, 0), position=3 * i) for i in range(16)]
    together = Sampler().sample(logits, rows=rows)
    alone = [Sampler().sample(logits[i : i + 1], rows=[rows[i]])[0] for i in range(16)]
    assert together == alone


def test_seeds_positions_and_choices_draw_differently() -> None:
    logits = [0.0] * 1000
    rows = [
        row(SamplingParameters(), seed=(seed, choice), position=position)
        for seed in (1, 2)
        for choice in (0, 1)
        for position in (0, 1)
    ]
    drawn = Sampler().sample(make_logits(*[logits] * len(rows)), rows=rows)
    assert len(set(drawn)) == len(rows)


def test_draws_follow_the_distribution() -> None:
    probabilities = [0.5, 0.3, 0.2]
    logits = make_logits(*[[math.log(p) for p in probabilities]] * 4000)
    rows = [row(SamplingParameters(), position=i) for i in range(4000)]
    counts = Counter(drawn.token_id for drawn in Sampler().sample(logits, rows=rows))
    for token, probability in enumerate(probabilities):
        assert counts[token] / 4000 == pytest.approx(probability, abs=0.03)
