"""Makes a generation of a request, or says why it can never be one."""

import secrets
from itertools import count

from aspira.contracts.generation import GenerateRequest
from aspira.llm.constraints import MakeConstraint
from aspira.llm.generation import Generation, start_choices
from aspira.llm.options import EngineOptions
from aspira.llm.request_checks import check_request
from aspira.llm.runner import Runner
from aspira.llm.streams import StreamOutlet
from aspira.llm.vocabulary import Vocabulary


class Intake:
    """What one model takes. On the event loop."""

    def __init__(
        self, runner: Runner, *, vocabulary: Vocabulary | None, options: EngineOptions
    ) -> None:
        self.max_context = min(runner.max_context, runner.num_blocks * runner.block_size)
        self.vocab_size = runner.vocab_size
        self._block_size = runner.block_size
        self._vocabulary = vocabulary
        self._options = options
        self._numbers = count()

    def make_generation(
        self,
        request: GenerateRequest,
        *,
        outlet: StreamOutlet,
        make_constraint: MakeConstraint | None,
    ) -> Generation:
        """A generation that could be accepted.

        Raises:
            InvalidArgument: the request can never be served.
        """
        max_tokens = check_request(
            request,
            vocab_size=self.vocab_size,
            max_context=self.max_context,
            max_choices=self._options.max_choices,
        )
        generation = Generation(request, max_tokens, outlet, self._count_queued(request))
        seed = request.sampling.seed
        start_choices(
            generation,
            arrival_number=next(self._numbers),
            seed=secrets.randbits(64) if seed is None else seed,
            vocabulary=self._vocabulary,
            make_constraint=make_constraint,
        )
        return generation

    def _count_queued(self, request: GenerateRequest) -> int:
        """Full blocks are computed by one choice and used by all, the rest by each."""
        num_prompt = len(request.prompt)
        num_shared = 0
        if self._options.prefix_cache:
            num_shared = (num_prompt - 1) // self._block_size * self._block_size
        return num_shared + request.num_choices * (num_prompt - num_shared)
