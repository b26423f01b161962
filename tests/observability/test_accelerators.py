from aspira.contracts.events import CompiledAfterReady, RuntimeChosen, RuntimesReleased
from aspira.contracts.servable import SignatureRuntime
from aspira.observability.accelerators import AcceleratorMetrics
from aspira.observability.exposition import render

A = 'model_path="/m/1",signature_name="a"'
B = 'model_path="/m/1",signature_name="b"'


def page(metrics: AcceleratorMetrics) -> list[str]:
    lines = render(list(metrics.families)).decode().splitlines()
    return [line for line in lines if not line.startswith("#")]


def test_what_serves_each_signature_until_its_version_is_unloaded() -> None:
    metrics = AcceleratorMetrics()
    metrics.note(RuntimeChosen("/m/1", "a", SignatureRuntime("openvino", "fast", precision="bf16")))
    metrics.note(RuntimeChosen("/m/1", "b", SignatureRuntime("tensorflow", "text")))
    metrics.note(RuntimesReleased("/m/2"))
    metrics.note(CompiledAfterReady("/m/1", "b"))
    late = [f":aspira:compiles_after_ready{{{A}}} 0", f":aspira:compiles_after_ready{{{B}}} 1"]
    assert page(metrics) == [
        *late,
        f':aspira:signature_runtime{{{A},runtime="openvino",precision="bf16"}} 1',
        f':aspira:signature_runtime{{{B},runtime="tensorflow",precision="f32"}} 1',
    ]
    metrics.note(RuntimesReleased("/m/1"))
    assert page(metrics) == late
