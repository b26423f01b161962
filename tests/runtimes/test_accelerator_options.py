from pathlib import Path

import pytest

from aspira.contracts.errors import FailedPrecondition, InvalidArgument
from aspira.runtimes import accelerator_options
from aspira.runtimes.accelerator_options import AcceleratorOptions, check_accelerator


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator_options, "find_spec", lambda name: None)


@pytest.mark.parametrize("kind", accelerator_options.ACCELERATORS)
def test_every_accelerator_computes_floats(kind: str) -> None:
    check_accelerator(AcceleratorOptions(kind=kind))


@pytest.mark.parametrize("kind", ["tensorflow", "xla"])
@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_other_precisions_are_openvinos(kind: str, precision: str) -> None:
    with pytest.raises(InvalidArgument, match=f"--precision={precision} is computed by OpenVINO"):
        check_accelerator(AcceleratorOptions(kind=kind, precision=precision))


def test_a_calibration_file_has_to_be_there(tmp_path: Path) -> None:
    file = str(tmp_path / "records")
    with pytest.raises(InvalidArgument, match=f"--calibration_file={file} is no file"):
        check_accelerator(AcceleratorOptions(kind="auto", calibration_file=file))
    Path(file).touch()
    check_accelerator(AcceleratorOptions(kind="auto", calibration_file=file))


@pytest.mark.usefixtures("nothing_installed")
@pytest.mark.parametrize(
    ("options", "text"),
    [
        (AcceleratorOptions(kind="openvino"), r"pip install 'aspira\[openvino\]'"),
        (AcceleratorOptions(kind="auto", precision="int8"), r"pip install 'aspira\[int8\]'"),
    ],
)
def test_what_is_not_installed_is_named(options: AcceleratorOptions, text: str) -> None:
    with pytest.raises(FailedPrecondition, match=text):
        check_accelerator(options)


@pytest.mark.usefixtures("nothing_installed")
def test_auto_does_with_what_is_there() -> None:
    check_accelerator(AcceleratorOptions(kind="auto"))
