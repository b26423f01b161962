import numpy as np
import pytest

from aspira.contracts.errors import InvalidArgument
from aspira.contracts.signatures import Signature, SignatureTable, TensorSpec
from aspira.contracts.tensors import DataType, Tensor

FLOAT = TensorSpec(DataType.FLOAT, (None,), "x:0")
A = np.float32([1])
B = np.float32([2])
DEFAULT = np.float32([9])


def signature(*inputs: str, defaults: tuple[str, ...] = ()) -> Signature:
    return Signature(
        inputs={alias: TensorSpec(DataType.FLOAT, None, f"{alias}:0") for alias in inputs},
        outputs={"y": FLOAT, "x": FLOAT, "z": FLOAT},
        defaults=dict.fromkeys(defaults, DEFAULT),
    )


def refusal(asked: Signature, *, inputs: dict[str, Tensor]) -> str:
    with pytest.raises(InvalidArgument) as caught:
        asked.bind_inputs(inputs)
    return caught.value.message


def test_inputs_come_in_the_signatures_order() -> None:
    bound = signature("b", "a").bind_inputs({"a": A, "b": B})
    assert list(bound) == ["b", "a"]
    assert bound["a"] is A
    assert bound["b"] is B


def test_a_default_fills_what_is_left_out() -> None:
    bound = signature("a", "b", defaults=("b",)).bind_inputs({"a": A})
    assert list(bound) == ["a", "b"]
    assert bound["a"] is A
    assert bound["b"] is DEFAULT


def test_a_given_input_wins_over_its_default() -> None:
    assert signature("a", defaults=("a",)).bind_inputs({"a": A})["a"] is A


def test_a_signature_without_inputs_takes_none() -> None:
    assert signature().bind_inputs({}) == {}


def test_too_many_inputs() -> None:
    assert refusal(signature("a"), inputs={"c": A, "a": A, "b": B}) == (
        "input size does not match signature: 3!=1 len({a,b,c}) != len({a})."
        " Sent extra: {b,c}. Missing but required: {}."
    )


def test_too_few_inputs_and_no_defaults() -> None:
    assert refusal(signature("b", "a", "c"), inputs={"a": A}) == (
        "input size does not match signature: 1!=3 len({a}) != len({a,b,c})."
        " Sent extra: {}. Missing but required: {b,c}."
    )


def test_no_inputs_at_all() -> None:
    assert refusal(signature("a"), inputs={}) == (
        "input size does not match signature: 0!=1 len({}) != len({a})."
        " Sent extra: {}. Missing but required: {a}."
    )


def test_what_has_a_default_is_not_required() -> None:
    assert refusal(signature("a", "b", defaults=("b",)), inputs={"c": A, "d": A, "e": A}) == (
        "input size does not match signature: 3!=2 len({c,d,e}) != len({a,b})."
        " Sent extra: {c,d,e}. Missing but required: {a}."
    )


def test_the_right_number_of_inputs_with_a_wrong_alias() -> None:
    assert refusal(signature("a", "b"), inputs={"a": A, "c": B}) == (
        "Signature input alias: b(feed name: b:0) not found in request and no default value"
        " provided. Inputs expected to be in the request {a,b}, or default input alias set: {}"
    )


def test_a_missing_input_where_another_has_a_default() -> None:
    assert refusal(signature("a", "b", defaults=("b",)), inputs={}) == (
        "Signature input alias: a(feed name: a:0) not found in request and no default value"
        " provided. Inputs expected to be in the request {a,b}, or default input alias set: {b}"
    )


def test_an_unknown_alias_where_a_default_fills_the_gap() -> None:
    assert refusal(signature("a", "b", defaults=("b",)), inputs={"a": A, "c": B}) == (
        "Inputs contains invalid name. Used request inputs: {a}, request input: {a,c}"
    )


@pytest.mark.parametrize(
    ("output_filter", "chosen"),
    [
        ((), ("y", "x", "z")),
        (("x",), ("x",)),
        (("z", "y"), ("y", "z")),
        (("z", "x", "y"), ("y", "x", "z")),
    ],
)
def test_outputs_come_in_the_signatures_order(
    output_filter: tuple[str, ...], chosen: tuple[str, ...]
) -> None:
    assert signature().choose_outputs(output_filter) == chosen


def test_an_unknown_output() -> None:
    with pytest.raises(InvalidArgument) as caught:
        signature().choose_outputs(("y", "w"))
    assert caught.value.message == (
        "output tensor alias not found in signature: w Outputs expected to be in the set {x,y,z}."
    )


def test_an_output_named_twice() -> None:
    with pytest.raises(InvalidArgument) as caught:
        signature().choose_outputs(("x", "y", "x"))
    assert caught.value.message == "duplicate output tensor alias: x"


def test_joined_signatures_have_the_aliases_of_all() -> None:
    table = SignatureTable({"one": signature("a"), "two": signature("a", "b")})
    joint = table.resolve(table.join(["two", "one"]))
    assert list(joint.inputs) == ["two/a", "two/b", "one/a"]
    assert list(joint.outputs) == ["two/y", "two/x", "two/z", "one/y", "one/x", "one/z"]
    assert table.resolve("one") is table["one"]


def test_clients_see_only_the_models_own_signatures() -> None:
    table = SignatureTable({"one": signature("a"), "two": signature("b")})
    name = table.join(["one", "two"])
    table.resolve(name)
    assert dict(table).keys() == {"one", "two"}
    assert len(table) == 2
    assert table.get(name) is None


def test_more_joints_than_are_kept_can_still_be_resolved() -> None:
    table = SignatureTable({str(index): signature("a") for index in range(200)})
    names = [table.join([str(index), "0"]) for index in range(1, 200)]
    for name in names * 2:
        assert len(table.resolve(name).inputs) == 2
    assert len(table._joints) <= 64


def test_internal_signatures_are_listed_and_cannot_be_asked() -> None:
    table = SignatureTable({"b": signature("a")}, internal={"a": signature()})
    assert list(table.listed()) == ["a", "b"]
    assert table.get("a") is None
