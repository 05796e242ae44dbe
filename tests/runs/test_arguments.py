import json

from fastrl.runs.arguments import RunArguments


def test_the_defaults_are_usable() -> None:
    assert RunArguments().problems() == []


def test_every_problem_is_told_with_field_value_and_remedy() -> None:
    run = RunArguments(
        train_pictures=0,
        eval_pictures=-1,
        max_rows=0,
        max_prompt_length=0,
        min_pixels=20,
        max_pixels=10,
        choices_as="number",
        accuracy_weight=-1.0,
        eval_rows=5,
        dataset="geometry3k",
        score_every=10,
        examples="2 + 2 is 4",
    )
    assert run.problems() == [
        "train_pictures = 0: expected at least 1",
        "eval_pictures = -1: expected at least 0",
        "max_rows = 0: expected at least 1",
        "max_prompt_length = 0: expected at least 1",
        "choices_as = 'number': expected 'letter' or 'text'",
        "min_pixels = 20: more than max_pixels = 10",
        "accuracy_weight = -1.0: expected at least 0",
        "eval_rows = 5: needs eval_split",
        "score_every = 10: nothing is held out; for other data than the toy's give eval_split",
        "examples = '2 + 2 is 4': expected questions and their replies, such as "
        '{"What is 2 + 2?": "<thinking>2 + 2 = 4</thinking>\\boxed{4}"}',
    ]


def test_nothing_rewarded_is_a_problem() -> None:
    (problem,) = RunArguments(accuracy_weight=0.0, format_weight=0.0).problems()
    assert "nothing is rewarded" in problem
    assert RunArguments(format_weight=0.0).problems() == []


def test_examples_are_a_mapping_or_its_json() -> None:
    turns = {"2 + 2?": "\\boxed{4}", "∠A = 90°?": "yes"}
    for given in (turns, json.dumps(turns)):
        run = RunArguments(dataset="mine", examples=given)
        assert run.problems() == []
        assert run.examples == turns
    for wrong in ({"2 + 2?": ""}, {"": "4"}, {"2 + 2?": 4}, [["2 + 2?", "4"]]):
        (problem,) = RunArguments(examples=wrong).problems()  # type: ignore[arg-type]
        assert problem.startswith("examples = ")


def test_what_is_held_out_may_be_scored_on_the_way() -> None:
    assert RunArguments(score_every=5).problems() == []
    assert RunArguments(dataset="mine", eval_split="test", score_every=5).problems() == []
