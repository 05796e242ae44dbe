import random

from hypothesis import given, settings
from hypothesis import strategies as st

from fastrl.geometry.toy import draw_figure
from fastrl.geometry.toy.rewards import has_format, is_right
from fastrl.geometry.toy.text import FORMAT_TOKENS, build_tokenizer, chat, worked_answer

TOKENIZER = build_tokenizer()


@given(st.text(max_size=60))
@settings(max_examples=100, deadline=None)
def test_any_text_passes_through_the_tokenizer(text: str) -> None:
    ids = TOKENIZER(text)["input_ids"]
    assert TOKENIZER.decode(ids, clean_up_tokenization_spaces=False) == text


def test_format_marks_are_single_tokens_and_digits_stay_single() -> None:
    for mark in FORMAT_TOKENS:
        assert len(TOKENIZER(mark)["input_ids"]) == 1
    assert len(TOKENIZER("180-50=130")["input_ids"]) == len("180-50=130")
    assert len(TOKENIZER) <= 400


def test_the_tokenizer_is_the_same_every_time() -> None:
    assert build_tokenizer().get_vocab() == TOKENIZER.get_vocab()


def test_prompts_end_where_the_answer_begins() -> None:
    text = TOKENIZER.apply_chat_template(chat("What?"), add_generation_prompt=True, tokenize=False)
    assert text == (
        "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>What?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_worked_answers_mix_right_and_wrong_as_asked() -> None:
    rng = random.Random(0)
    figures = [draw_figure(seed) for seed in range(2000)]
    answers = [worked_answer(figure, rng, 0.4, 0.5) for figure in figures]
    right = [is_right(a, f.answer) for a, f in zip(answers, figures, strict=True)]
    formatted = [has_format(a) for a in answers]
    assert abs(sum(right) / 2000 - 0.4) < 0.04
    assert abs(sum(formatted) / 2000 - 0.5) < 0.04
