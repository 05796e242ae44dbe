import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastrl.verl.batching import BatchShape, spread_padding


@pytest.mark.parametrize(
    ("rows", "num_generations", "mini_batch", "updates"),
    [(48, 6, 4, 2), (24, 3, 4, 2), (48, 6, 8, 1), (48, 6, 6, 2), (46, 6, 4, 2), (2, 2, 8, 1)],
)
def test_as_many_updates_as_verl_makes(
    rows: int, num_generations: int, mini_batch: int, updates: int
) -> None:
    shape = BatchShape(mini_batch, None, ())
    assert shape.updates(rows, num_generations) == updates


def test_the_multiple_with_dynamic_batching_is_ranks_times_updates() -> None:
    assert BatchShape(4, None, ()).row_multiple(ranks=2, updates=3) == 6


def test_the_multiple_holds_whole_micro_batches_of_every_pass() -> None:
    # Each rank: 2 updates of 4-row micro-batches, and passes of 6 and 3 rows.
    assert BatchShape(4, 4, (6, 3)).row_multiple(ranks=2, updates=2) == 2 * 24


@given(
    ranks=st.integers(1, 4),
    updates=st.integers(1, 4),
    per_update=st.integers(1, 5),
    data=st.data(),
)
def test_padding_is_dealt_evenly(
    ranks: int, updates: int, per_update: int, data: st.DataObject
) -> None:
    per_rank = updates * per_update
    is_padding = data.draw(
        st.lists(st.booleans(), min_size=ranks * per_rank, max_size=ranks * per_rank)
    )
    order = spread_padding(is_padding, ranks, updates)
    assert sorted(order) == list(range(len(is_padding)))
    real_of_update = [0] * updates
    for rank in range(ranks):
        mine = order[rank * per_rank : (rank + 1) * per_rank]
        assert all(row // per_rank == rank for row in mine)
        real = [row for row in mine if not is_padding[row]]
        assert real == sorted(real)
        for update in range(updates):
            rows = mine[update * per_update : (update + 1) * per_update]
            real_of_update[update] += sum(not is_padding[row] for row in rows)
    assert max(real_of_update) - min(real_of_update) <= 1
