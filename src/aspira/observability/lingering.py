"""What has ended stays on the metrics page for a while, so that a last scrape sees how it ended."""

from aspira.contracts.events import (
    LifecycleEvent,
    ModelRemoved,
    SourceProblem,
    VersionRetired,
    VersionStateChanged,
)

LINGER_S = 300.0

Departed = VersionRetired | ModelRemoved


class Lingering:
    """The versions and models that have ended and are still told of. Not for several threads."""

    def __init__(self) -> None:
        self._leave_at_s: dict[Departed, float] = {}

    def note(self, event: LifecycleEvent, *, now_s: float) -> None:
        """Something ended, or came back."""
        match event:
            case VersionRetired() | ModelRemoved():
                self._leave_at_s[event] = now_s + LINGER_S
            case VersionStateChanged(previous_state=None):
                back = event.servable_id
                for gone in list(self._leave_at_s):
                    is_version = isinstance(gone, VersionRetired) and gone.servable_id == back
                    if is_version or gone == ModelRemoved(back.name):
                        del self._leave_at_s[gone]
            case SourceProblem(model_name=name, message=message) if message:
                self._leave_at_s.pop(ModelRemoved(name), None)

    def take(self, now_s: float) -> list[Departed]:
        """What is to leave by now; it is forgotten here."""
        due = [gone for gone, leave_at_s in self._leave_at_s.items() if leave_at_s <= now_s]
        for gone in due:
            del self._leave_at_s[gone]
        return due
