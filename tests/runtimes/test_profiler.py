import pytest
import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from aspira.contracts.errors import Internal
from aspira.runtimes.profiler import take_profile


def multiply() -> bool:
    """Some work for the profile; it is wanted."""
    matrix = tf.ones([8, 8])
    tf.linalg.matmul(matrix, matrix)
    return True


def test_a_profile_tells_what_ran() -> None:
    profile = take_profile(multiply)
    assert profile is not None
    assert not profile.is_empty
    planes = xplane_pb2.XSpace.FromString(profile.xspace).planes
    names = {data.name for plane in planes for data in plane.event_metadata.values()}
    assert any("MatMul" in name for name in names), names


def test_a_profile_in_which_nothing_ran_is_empty() -> None:
    profile = take_profile(lambda: True)
    assert profile is not None
    assert profile.is_empty


def test_a_profile_that_is_not_wanted_leaves_the_profiler_free() -> None:
    assert take_profile(lambda: False) is None
    assert take_profile(lambda: True) is not None


def test_a_second_profile_is_refused_as_tensorflow_refuses_it() -> None:
    errors: list[Internal] = []

    def take_another() -> bool:
        with pytest.raises(Internal) as caught:
            take_profile(lambda: True)
        errors.append(caught.value)
        return True

    assert take_profile(take_another) is not None
    assert [error.message for error in errors] == ["Another profiling session active."]
