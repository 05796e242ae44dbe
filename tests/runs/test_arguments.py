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
        "score_every = 10: scores the toy; for other data give eval_split and TRL's eval_strategy "
        "and eval_steps",
    ]


def test_nothing_rewarded_is_a_problem() -> None:
    (problem,) = RunArguments(accuracy_weight=0.0, format_weight=0.0).problems()
    assert "nothing is rewarded" in problem
    assert RunArguments(format_weight=0.0).problems() == []
