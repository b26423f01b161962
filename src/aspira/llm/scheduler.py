"""Decides who takes part in the next step, and which blocks they hold for it.

Sequences are ranked by priority and age. Those that need one token go first, in every step; those
that are behind share the rest of the step's tokens. Newcomers are admitted when there is room for
what they are expected to need. Should the blocks run out all the same, the lowest rank loses its
last blocks, and what it lost is computed again later. The highest rank never loses anything, so
that whatever happens one sequence gets to its end, and then the next.
"""

from bisect import insort
from collections.abc import Iterable, Mapping

from aspira.contracts.errors import Internal
from aspira.llm.kv_blocks import KvBlocks
from aspira.llm.options import EngineOptions
from aspira.llm.sequence import Rank, Sequence, SequenceState
from aspira.llm.step_plan import PlannedRow, StepPlan, share_prefill

_MAX_PASSED_OVER = 4
"""Waiting sequences that one step finds to have no room before it looks no further."""


class Scheduler:
    """Plans steps over sequences and blocks. One thread, no clock, no tensors."""

    def __init__(self, num_blocks: int, *, block_size: int, options: EngineOptions) -> None:
        self.blocks = KvBlocks(num_blocks, block_size=block_size)
        self.num_preemptions = 0
        self.num_queried_tokens = 0
        self.num_hit_tokens = 0
        self._options = options
        self._waiting: list[Sequence] = []  # both by rank
        self._running: list[Sequence] = []
        self._planned: dict[Sequence, int] = {}

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def sequences(self) -> tuple[Sequence, ...]:
        """All that have not ended."""
        return (*self._running, *self._waiting)

    def add(self, sequence: Sequence) -> None:
        """Let it wait for its turn."""
        insort(self._waiting, sequence, key=_rank)

    def remove(self, sequence: Sequence) -> None:
        """End it, in whatever state, and free its blocks now. Removing twice does nothing."""
        if sequence.is_ended:
            return
        line = self._running if sequence.state is SequenceState.RUNNING else self._waiting
        line.remove(sequence)
        sequence.state = SequenceState.ENDED
        self._drop_blocks(sequence, num_kept=0)

    def remove_corrupt(self, sequence: Sequence) -> None:
        """End it, and let nobody use what it computed."""
        self.blocks.forget(sequence.block_ids)
        self.remove(sequence)

    def restart(self, num_blocks: int) -> None:
        """Go on with an empty cache: everybody waits again, to be computed from the beginning."""
        self.blocks = KvBlocks(num_blocks, block_size=self.blocks.block_size)
        for sequence in self.sequences:
            sequence.keep_blocks(0, block_size=self.blocks.block_size)
            sequence.state = SequenceState.WAITING
        self._waiting = sorted(self.sequences, key=_rank)
        self._running = []

    def check_idle(self) -> None:
        """With no sequence there must be no block that is held. Costs nothing.

        Raises:
            Internal: blocks were lost, and more would be until none is left.
        """
        if self.blocks.num_held:
            raise Internal(f"{self.blocks.num_held} cache blocks are held, and by no request")

    def plan(self) -> StepPlan:
        """The next step. Its rows hold the blocks they need."""
        self._planned = {}
        self._plan_next_tokens()
        self._admit()
        self._plan_catching_up()
        return StepPlan(tuple(PlannedRow(*item) for item in self._planned.items()))

    def commit(self, plan: StepPlan, *, drawn: Mapping[Sequence, int]) -> None:
        """Note that a step was computed, and which tokens follow."""
        for sequence, num_tokens in plan.rows:
            sequence.num_computed += num_tokens
            self._register_full_blocks(sequence)
            if sequence in drawn:
                sequence.drawn.append(drawn[sequence])

    def _plan_next_tokens(self) -> None:
        for sequence in tuple(self._running):
            if sequence.state is SequenceState.RUNNING and sequence.num_missing == 1:
                self._plan_row(sequence, num_tokens=1)

    def _plan_catching_up(self) -> None:
        behind = [s for s in self._running if s not in self._planned and s.num_missing > 0]
        budget = self._options.max_step_tokens - sum(self._planned.values())
        shares = share_prefill([s.num_missing for s in behind], budget=budget)
        for sequence, share in zip(behind, shares, strict=True):
            if share and sequence.state is SequenceState.RUNNING:
                self._plan_row(sequence, num_tokens=share)

    def _plan_row(self, sequence: Sequence, *, num_tokens: int) -> None:
        """Plan as many of these tokens as blocks can be had for; lower ranks give up theirs."""
        wanted = self.blocks.num_blocks_for(sequence.num_computed + num_tokens)
        wanted -= len(sequence.block_ids)
        self._take_from_lower_ranks(sequence.rank, num_wanted=wanted)
        granted = min(wanted, self.blocks.num_available)
        if granted > 0:
            sequence.block_ids += self.blocks.allocate(granted)
        room = len(sequence.block_ids) * self.blocks.block_size - sequence.num_computed
        if room > 0:
            self._planned[sequence] = min(num_tokens, room)

    def _take_from_lower_ranks(self, rank: Rank, *, num_wanted: int) -> None:
        """Preempt until so many blocks can be had: those that wait anyway first, then the last."""
        if self.blocks.num_available >= num_wanted:
            return
        for donor in (*reversed(self._waiting), *reversed(self._running)):
            if donor.rank > rank and donor.block_ids:
                self._preempt(donor, num_wanted=num_wanted)
                if self.blocks.num_available >= num_wanted:
                    return

    def _preempt(self, donor: Sequence, *, num_wanted: int) -> None:
        """Take blocks from a sequence's end, no more than are wanted."""
        if donor.state is SequenceState.RUNNING:
            self.num_preemptions += 1
            self._planned.pop(donor, None)
            self._running.remove(donor)
            donor.state, donor.was_preempted = SequenceState.PREEMPTED, True
            self.add(donor)
            # What was held for the step that it now misses: only full blocks are kept.
            self._drop_blocks(donor, num_kept=donor.num_computed // self.blocks.block_size)
        while donor.block_ids and self.blocks.num_available < num_wanted:
            self._drop_blocks(donor, num_kept=len(donor.block_ids) - 1)

    def _drop_blocks(self, sequence: Sequence, *, num_kept: int) -> None:
        block_size = self.blocks.block_size
        self.blocks.release(sequence.keep_blocks(num_kept, block_size=block_size))

    def _admit(self) -> None:
        """Let waiting sequences in, the first first; one that has no room yet may be overtaken."""
        passed_over: list[Sequence] = []
        for sequence in tuple(self._waiting):
            if len(self._running) >= self._options.max_sequences:
                return
            if sequence.waits_for_leader:
                continue
            if self._try_admit(sequence):
                for other in passed_over:
                    other.num_times_overtaken += 1
            else:
                passed_over.append(sequence)
            if len(passed_over) == _MAX_PASSED_OVER or not self._may_overtake(passed_over):
                return

    def _may_overtake(self, passed_over: Iterable[Sequence]) -> bool:
        limit = self._options.max_overtakes
        return not any(s.was_preempted or s.num_times_overtaken >= limit for s in passed_over)

    def _try_admit(self, sequence: Sequence) -> bool:
        hits = self._find_cached(sequence)
        if not self._has_room(sequence, hits=hits):
            return False
        self.blocks.acquire(hits)
        sequence.block_ids += hits
        sequence.num_computed = len(sequence.block_ids) * self.blocks.block_size
        sequence.num_registered = len(sequence.block_ids)
        self._waiting.remove(sequence)
        insort(self._running, sequence, key=_rank)
        sequence.state = SequenceState.RUNNING
        if not sequence.was_admitted:
            self._count_admitted(sequence)
        return True

    def _count_admitted(self, sequence: Sequence) -> None:
        sequence.was_admitted = True
        sequence.num_cached_tokens = sequence.num_computed
        self.num_queried_tokens += sequence.num_prompt_tokens
        self.num_hit_tokens += sequence.num_cached_tokens

    def _find_cached(self, sequence: Sequence) -> list[int]:
        """Known blocks that go on where its own end. The last token is always computed, in a
        block of its own: the logits are wanted, and a shared block must not be written to.
        """
        if not self._options.prefix_cache:
            return []
        block_size = self.blocks.block_size
        num_full = (sequence.num_tokens - 1) // block_size
        keys = sequence.extend_keys(num_full, block_size=block_size)
        return self.blocks.match(keys[len(sequence.block_ids) :])

    def _has_room(self, sequence: Sequence, *, hits: list[int]) -> bool:
        if not self._running:
            return True
        # Those that run may not take the blocks that this one kept; it may take theirs.
        if sequence.was_preempted and sequence.rank < self._running[0].rank:
            return True
        num_own = len(sequence.block_ids) + len(hits) - self.blocks.num_unheld(hits)
        promised = sum(self._num_reserved(s) - len(s.block_ids) for s in self._running)
        watermark = int(self._options.watermark * self.blocks.num_blocks)
        return (
            self._num_reserved(sequence) - num_own + promised + watermark
            <= self.blocks.num_available
        )

    def _num_reserved(self, sequence: Sequence) -> int:
        """The blocks that it is expected to hold in the end, or holds already."""
        expected = sequence.num_prompt_tokens + self._options.reserved_output_tokens
        num_tokens = min(max(expected, sequence.num_tokens), sequence.max_total_tokens)
        if sequence.was_preempted:
            num_tokens = sequence.max_total_tokens
        return max(self.blocks.num_blocks_for(num_tokens), len(sequence.block_ids))

    def _register_full_blocks(self, sequence: Sequence) -> None:
        if not self._options.prefix_cache:
            return
        block_size = self.blocks.block_size
        num_full = sequence.num_computed // block_size
        if num_full == sequence.num_registered:
            return
        keys = sequence.extend_keys(num_full, block_size=block_size)
        for index in range(sequence.num_registered, num_full):
            self.blocks.register(sequence.block_ids[index], key=keys[index])
        sequence.num_registered = num_full


def _rank(sequence: Sequence) -> Rank:
    return sequence.rank
