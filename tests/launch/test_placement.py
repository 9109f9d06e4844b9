"""Where learner and actors go, over machines of every kind, and what a shortage says."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamarckian_cli.errors import ClusterError
from lamarckian_cli.launch.placement import Machine, Placement, place, vacancies
from lamarckian_cli.launch.settings import Cluster


def cluster(**keys: object) -> Cluster:
    return Cluster(**{"kind": "auto", "actors": None, **keys})


def machines(*sizes: int, gpus: dict[int, int] | None = None, here: int | None = 0) -> list[Machine]:
    """Machines `0`, `1`, ... with so many cores each."""
    return [
        Machine(
            node_id=str(i),
            address=f"10.0.0.{i}",
            name=f"m{i}",
            cores=cores,
            gpus=(gpus or {}).get(i, 0),
            here=i == here,
        )
        for i, cores in enumerate(sizes)
    ]


def counts(placement: Placement) -> dict[str, int]:
    return {machine.node_id: count for machine, count in placement.actors}


@pytest.mark.parametrize(
    ("sizes", "gpus", "here", "keys", "learner", "device", "expected"),
    [
        # One machine: with a GPU it is shared, without one a core is the learner's, unless there is but one.
        ((4,), {0: 1}, 0, {}, "0", "cuda", {"0": 4}),
        ((4,), {}, 0, {}, "0", "cpu", {"0": 3}),
        ((1,), {}, 0, {}, "0", "cpu", {"0": 1}),
        # A GPU machine is the learner's alone; of several, the one here, then the one with fewest cores.
        ((4, 4, 4), {1: 1}, 0, {}, "1", "cuda", {"0": 4, "2": 4}),
        ((4, 8, 2), {0: 1, 1: 1, 2: 1}, 1, {}, "1", "cuda", {"0": 4, "2": 2}),
        ((4, 8, 2), {0: 1, 1: 1, 2: 1}, None, {}, "2", "cuda", {"0": 4, "1": 8}),
        # Without a GPU the learner is here, or on the first machine.
        ((4, 4), {}, 1, {}, "1", "cpu", {"0": 4, "1": 3}),
        ((4, 4), {}, None, {}, "0", "cpu", {"0": 3, "1": 4}),
        ((1, 1), {}, 0, {}, "0", "cpu", {"1": 1}),
        ((0, 2), {}, 0, {}, "0", "cpu", {"1": 2}),
        # The machine of the GPU is the only one with cores.
        ((4, 0), {0: 1}, 0, {}, "0", "cuda", {"0": 4}),
        # A number of actors is dealt out evenly, and small machines are not overfilled.
        ((4, 8, 8), {0: 1}, 0, {"actors": 5}, "0", "cuda", {"1": 3, "2": 2}),
        ((9, 1, 4, 4), {0: 1}, 0, {"actors": 7}, "0", "cuda", {"1": 1, "2": 3, "3": 3}),
        ((8, 8, 8), {}, 0, {"actors": 2}, "0", "cpu", {"0": 1, "1": 1}),
        # A named size; a number of actors wins over it.
        ((4, 40, 40), {0: 1}, 0, {"cores": 80, "learner_gpus": 1}, "0", "cuda", {"1": 40, "2": 40}),
        ((4, 40, 40), {0: 1}, 0, {"cores": 8000, "actors": 2}, "0", "cuda", {"1": 1, "2": 1}),
    ],
)
def test_where_they_go(sizes, gpus, here, keys, learner, device, expected) -> None:
    placement = place(cluster(**keys), machines(*sizes, gpus=gpus, here=here))
    assert (placement.learner.node_id, placement.learner_device) == (learner, device)
    assert counts(placement) == expected
    assert placement.total_actors == sum(expected.values())
    assert [m.node_id for m in placement.agents] == [node for node in expected if node != learner]
    assert placement.notes == ()


PAPER = machines(*[40] * 151, gpus={0: 1})


def test_six_thousand_cores() -> None:
    placement = place(cluster(cores=6000, learner_gpus=1), PAPER)
    assert set(counts(placement).values()) == {40}
    assert len(placement.agents) == 150


@pytest.mark.parametrize(
    ("command", "keys", "sizes", "gpus", "message"),
    [
        (
            "lamarck train env=pong cluster=6000cores",
            {"cores": 6000, "learner_gpus": 1},
            (2,),
            {},
            "cluster.cores is 6000 (150 machines of 40), but 1 machine gives 1 core for actors "
            "(of its 2 cores the learner keeps one); "
            "cluster.learner_gpus is 1, but 1 machine gives 0 GPUs; take what is there with "
            "cluster.on_shortage=shrink, or run it here with "
            "lamarck train env=pong cluster=auto cluster.actors=1",
        ),
        (
            "lamarck train 'players.seats=[main,random]' cluster=160cores seed=1 cluster.cores=100 "
            "++cluster.actors=90",
            {"cores": 100, "actors": 90, "learner_gpus": 1},
            (4, 4, 4),
            {2: 1},
            "cluster.actors is 90, but 3 machines give 8 cores for actors; take what is there with "
            "cluster.on_shortage=shrink, or run it here with lamarck train 'players.seats=[main,random]' "
            "seed=1 cluster=auto cluster.actors=8 cluster.learner_gpus=1",
        ),
        (
            "lamarck train cluster=auto cluster.actors=2 cluster.learner_gpus=1 cluster.port=7000",
            {"actors": 2, "learner_gpus": 1},
            (4, 4),
            {},
            "cluster.learner_gpus is 1, but 2 machines give 0 GPUs; take what is there with "
            "cluster.on_shortage=shrink, or run it here with "
            "lamarck train cluster.port=7000 cluster=auto cluster.actors=2",
        ),
        (
            "lamarck train resume=last cluster.actors=50",
            {"actors": 50, "learner_gpus": 1},
            (4, 4),
            {},
            "cluster.actors is 50, but 2 machines give 7 cores for actors (of their 8 cores the learner "
            "keeps one); cluster.learner_gpus is 1, but 2 machines give 0 GPUs; take what is there with "
            "cluster.on_shortage=shrink, or run it here with "
            "lamarck train resume=last cluster.actors=7 cluster.learner_gpus=0",
        ),
        (
            "",
            {"actors": 3},
            (3,),
            {},
            "cluster.actors is 3, but 1 machine gives 2 cores for actors (of its 3 cores the learner keeps "
            "one); take what is there with cluster.on_shortage=shrink, or run it here with "
            "lamarck train cluster=auto cluster.actors=2",
        ),
    ],
)
def test_a_shortage_stops_and_ends_with_the_command_that_runs(command, keys, sizes, gpus, message) -> None:
    with pytest.raises(ClusterError) as caught:
        place(cluster(**keys), machines(*sizes, gpus=gpus), shlex.split(command))
    assert str(caught.value) == message


def test_a_shortage_begins_with_the_machines_that_are_not_fit() -> None:
    """The first three by name; what is left of the others is their number."""
    why = [f"m{n} is not used: it is full" for n in range(5)]
    with pytest.raises(ClusterError) as caught:
        place(cluster(actors=9), machines(4), (), why[:3])
    assert str(caught.value).startswith(
        f"{'; '.join(why[:3])}; cluster.actors is 9, but 1 machine gives 3 cores"
    )
    with pytest.raises(
        ClusterError, match=r"m2 is not used: it is full; 2 machines more are not used; cluster"
    ):
        place(cluster(actors=9), machines(4), (), why)
    with pytest.raises(
        ClusterError, match=r"^m0 is not used: it is full; 1 machine of the Ray cluster gives? 0"
    ):
        place(cluster(), machines(0), (), why[:1])


def test_shrinking_takes_what_is_there_and_says_so() -> None:
    wanted = cluster(cores=6000, learner_gpus=1, on_shortage="shrink")
    placement = place(wanted, machines(2, 2))
    assert counts(placement) == {"0": 1, "1": 2}
    assert placement.learner_device == "cpu"
    assert placement.notes == (
        "cluster.cores is 6000 (150 machines of 40), but 2 machines give 3 cores for actors "
        "(of their 4 cores the learner keeps one): going on with 3 actors, the learner without a GPU",
        "cluster.learner_gpus is 1, but 2 machines give 0 GPUs: going on with 3 actors, "
        "the learner without a GPU",
    )


@pytest.mark.parametrize("on_shortage", ["stop", "shrink"])
@pytest.mark.parametrize(("sizes", "said"), [((), "no machine that is alive"), ((0, 0), "give 0 cores")])
def test_nothing_can_run_without_a_core(on_shortage: str, sizes: tuple[int, ...], said: str) -> None:
    with pytest.raises(ClusterError, match=said):
        place(cluster(on_shortage=on_shortage), machines(*sizes))


def test_actors_of_a_machine_that_is_gone_start_on_the_others() -> None:
    there = machines(4, 4, 4, 4)
    placement = place(cluster(actors=9), there)
    assert counts(placement) == {"0": 3, "1": 2, "2": 2, "3": 2}
    left = there[:3]
    running = {**counts(placement)}
    found = vacancies(placement, left, running)
    assert [m.node_id for m in found] == ["1", "2"]


def test_a_machine_that_joins_gets_what_was_missing_and_no_more() -> None:
    there = machines(2, 2)
    placement = place(cluster(actors=5, on_shortage="shrink"), there)
    joined = machines(2, 2, 8)
    assert [m.node_id for m in vacancies(placement, joined, counts(placement))] == ["2", "2"]
    assert vacancies(placement, there, counts(placement)) == []


def test_without_a_number_a_machine_that_joins_is_filled() -> None:
    placement = place(cluster(), machines(2, 2))
    found = vacancies(placement, machines(2, 2, 3), counts(placement))
    assert [m.node_id for m in found] == ["2", "2", "2"]


def test_the_learner_stays_where_it_is_and_keeps_its_machine() -> None:
    placement = place(cluster(), machines(4, 4, gpus={0: 1}))
    joined = machines(4, 4, 4, gpus={0: 1, 2: 1}, here=2)
    assert [m.node_id for m in vacancies(placement, joined, counts(placement))] == ["2"] * 4


MACHINES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1)).map(list), min_size=1, max_size=8).map(
    lambda found: machines(*[c for c, _ in found], gpus={i: g for i, (_, g) in enumerate(found)})
)


@settings(deadline=None)
@given(MACHINES, st.none() | st.integers(1, 60))
def test_every_placement_keeps_the_rules(there: list[Machine], actors: int | None) -> None:
    asked = cluster(actors=actors, on_shortage="shrink")
    if not any(m.cores for m in there):
        with pytest.raises(ClusterError):
            place(asked, there)
        return
    placement = place(asked, there)
    got = {m.node_id: counts(placement).get(m.node_id, 0) for m in there}
    cores = {m.node_id: m.cores for m in there}
    assert all(got[node] <= cores[node] for node in got)
    assert 1 <= placement.total_actors <= (actors or 10**9)
    assert bool(placement.learner.gpus) == any(m.gpus for m in there)
    assert bool(placement.notes) == (actors is not None and placement.total_actors < actors)
    # Even: no machine has two more than another that could take one more (the learner's is special).
    others = [m for m in there if m.node_id != placement.learner.node_id]
    for m in others:
        assert all(got[m.node_id] - got[o.node_id] <= 1 for o in others if got[o.node_id] < cores[o.node_id])
    assert vacancies(placement, there, got) == []


@settings(deadline=None)
@given(MACHINES, MACHINES, st.none() | st.integers(1, 60))
def test_filling_vacancies_leaves_none(
    before: list[Machine], after: list[Machine], actors: int | None
) -> None:
    if not any(m.cores for m in before):
        return
    placement = place(cluster(actors=actors, on_shortage="shrink"), before)
    running = {node: min(count, 9) for node, count in counts(placement).items()}
    present = {m.node_id: running.get(m.node_id, 0) for m in after}
    for machine in vacancies(placement, after, running):
        present[machine.node_id] += 1
        assert present[machine.node_id] <= machine.cores
    assert vacancies(placement, after, present) == []
    assert actors is None or sum(present.values()) <= max(actors, sum(running.values()))
