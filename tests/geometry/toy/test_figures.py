import pytest
from PIL import ImageChops

from fastrl.geometry.toy import FAMILIES, draw_figure, figures
from fastrl.geometry.toy.figures import LABEL_NUMBERS, PICTURE_SIZE


def test_the_same_seed_draws_the_same_picture() -> None:
    first, second = draw_figure("a"), draw_figure("a")
    assert first.question == second.question
    assert ImageChops.difference(first.picture, second.picture).getbbox() is None


def test_all_families_come_up_about_equally_often() -> None:
    counts = dict.fromkeys(FAMILIES, 0)
    for figure in figures(800):
        counts[figure.family] += 1
    assert min(counts.values()) > 150


@pytest.mark.parametrize("family", FAMILIES)
def test_the_right_procedure_computes_the_answer(family: str) -> None:
    for seed in range(60):
        figure = draw_figure(seed, family)
        assert eval(figure.right.expression) == figure.right.result
        assert figure.answer == str(figure.right.result)
        for wrong in figure.wrong:
            assert eval(wrong.expression) == wrong.result
            assert wrong.result != figure.right.result


def test_known_answers() -> None:
    triangle = next(f for f in figures(200) if f.family == "triangle")
    assert triangle.right.result == 180 - sum(triangle.labels)
    rectangle = next(f for f in figures(200) if f.family == "rectangle")
    assert rectangle.right.result == rectangle.labels[0] * rectangle.labels[1]
    circle = next(f for f in figures(200) if f.family == "circle")
    assert circle.right.result == 2 * circle.labels[0]
    parallelogram = next(f for f in figures(200) if f.family == "parallelogram")
    assert parallelogram.right.result == 180 - parallelogram.labels[0]


def test_labels_stand_in_the_picture_one_to_a_cell() -> None:
    for figure in figures(200):
        assert set(figure.labels) <= set(LABEL_NUMBERS)
        cells = {(x // 28, y // 28) for x, y in figure.label_centres}
        assert len(cells) == len(figure.labels)
        for x, y in figure.label_centres:
            assert 0 <= x < PICTURE_SIZE
            assert 0 <= y < PICTURE_SIZE


def test_held_out_pictures_are_not_training_pictures() -> None:
    train = {figure.picture.tobytes() for figure in figures(400)}
    held_out = {figure.picture.tobytes() for figure in figures(400, held_out=True)}
    other_seed = {figure.picture.tobytes() for figure in figures(400, seed=1)}
    assert not train & held_out
    assert not train & other_seed


def test_an_unknown_family_is_named() -> None:
    with pytest.raises(ValueError, match="'hexagon' is not one of triangle"):
        draw_figure(0, "hexagon")
