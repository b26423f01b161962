import pytest
from google.protobuf import descriptor_pool
from tensorflow.core.example import example_pb2

from aspira.wire.message_fields import MessageField, make_message, make_message_classes
from aspira.wire.text_format import parse_text

MESSAGES = {
    "Inner": (MessageField("text", 3, "string"),),
    "Outer": (MessageField("inner", 1, "Inner"), MessageField("flag", 2, "bool")),
}


def test_a_message_has_its_fields_by_number() -> None:
    message = make_message("Outer", messages=MESSAGES)
    message.inner.text = "a"
    message.flag = True
    assert message.SerializeToString() == b"\x0a\x03\x1a\x01a\x10\x01"


def test_a_message_is_read_from_text() -> None:
    message = make_message("Outer", messages=MESSAGES)
    parse_text("flag: true inner { text: 'x' }", into=message, origin="file")
    assert (message.flag, message.inner.text) == (True, "x")


def test_a_message_is_of_tensorflow_servings_package_and_of_its_own_pool() -> None:
    message = make_message("Outer", messages=MESSAGES)
    assert message.DESCRIPTOR.full_name == "tensorflow.serving.Outer"
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("tensorflow.serving.Outer")


def test_each_call_makes_a_message_of_its_own() -> None:
    first = make_message("Outer", messages=MESSAGES)
    second = make_message("Outer", messages=MESSAGES)
    first.flag = True
    assert second.flag is False


def test_all_classes_of_a_file_go_together_in_the_package_that_is_named() -> None:
    classes = make_message_classes("file", messages=MESSAGES, package="other")
    assert list(classes) == ["Inner", "Outer"]
    outer = classes["Outer"](inner=classes["Inner"](text="a"))
    assert outer.DESCRIPTOR.full_name == "other.Outer"
    assert outer.SerializeToString() == b"\x0a\x03\x1a\x01a"


def test_a_message_may_be_made_of_those_of_other_files() -> None:
    message = make_message(
        "Outer",
        messages={"Outer": (MessageField("example", 1, "tensorflow.Example"),)},
        dependencies=(example_pb2.DESCRIPTOR,),
    )
    text = "example { features { feature { key: 'x' value { int64_list { value: 7 } } } } }"
    parse_text(text, into=message, origin="file")
    example = example_pb2.Example.FromString(message.example.SerializeToString())
    assert list(example.features.feature["x"].int64_list.value) == [7]
