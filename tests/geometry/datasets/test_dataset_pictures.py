from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from picture_files import drawn, encoded
from PIL import Image

from fastrl.geometry.datasets.pictures import Picture, PictureError, fit_pixels, fitted_size


def pixel(picture: Image.Image, place: tuple[int, int] = (0, 0)) -> tuple[int, ...]:
    found = picture.getpixel(place)
    assert isinstance(found, tuple)
    return found


def test_a_path_bytes_and_what_hugging_face_stores_are_the_same(tmp_path: Path) -> None:
    drawn(3).save(tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    sources = [
        Picture("a.png", tmp_path),
        Picture(tmp_path / "a.png"),
        Picture(content),
        Picture({"bytes": content, "path": "elsewhere.png"}),
        Picture({"bytes": None, "path": str(tmp_path / "a.png")}),
        Picture(drawn(3)),
    ]
    for picture in sources:
        assert picture.size() == (80, 40)
        assert np.array_equal(np.asarray(picture.open()), np.asarray(drawn(3)))


def test_exif_turns_a_picture_upright() -> None:
    lying = Image.new("RGB", (40, 20), "red")
    lying.paste("blue", (20, 0, 40, 20))
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned a quarter clockwise
    picture = Picture(encoded(lying, exif=exif))
    upright = picture.open()
    assert upright.size == picture.size() == picture.check() == (20, 40)
    assert pixel(upright, (10, 5)) == (255, 0, 0)
    assert pixel(upright, (10, 35)) == (0, 0, 255)


def test_transparent_becomes_white_in_every_mode() -> None:
    # Black ink, and black below what is transparent.
    layer = Image.new("RGBA", (10, 10), (0, 0, 0, 0))
    layer.paste((0, 0, 0, 255), (5, 0, 10, 10))
    palette = layer.convert("RGB").quantize(2)
    palette.info["transparency"] = palette.getpixel((0, 0))
    half = Image.new("RGBA", (10, 10), (255, 0, 0, 128))
    for content in (encoded(layer), encoded(layer.convert("LA"))):
        opened = Picture(content).open()
        assert opened.mode == "RGB"
        assert (pixel(opened, (0, 0)), pixel(opened, (9, 0))) == ((255, 255, 255), (0, 0, 0))
    transparent = Picture(encoded(palette)).open()
    assert (transparent.mode, pixel(transparent)) == ("RGB", (255, 255, 255))
    assert pixel(Picture(encoded(half)).open()) == (255, 127, 127)


def test_palettes_greys_and_cmyk_become_rgb() -> None:
    red = Image.new("RGB", (10, 10), (200, 30, 30))
    assert pixel(Picture(encoded(red.quantize(4))).open()) == (200, 30, 30)
    assert pixel(Picture(encoded(Image.new("1", (10, 10), 1))).open()) == (255, 255, 255)
    assert pixel(Picture(encoded(Image.new("CMYK", (10, 10), 0), "jpeg")).open()) == (255,) * 3
    deep = Image.fromarray(np.full((10, 10), 128 * 257, dtype=np.uint16))
    assert pixel(Picture(encoded(deep)).open()) == (128, 128, 128)


def test_what_is_broken_is_named(tmp_path: Path) -> None:
    whole = encoded(drawn(size=(300, 200)), "jpeg")
    (tmp_path / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.png").write_text("not a picture")
    for name, why in (
        ("cut.jpg", "truncated"),
        ("text.png", "cannot identify"),
        ("none.png", "No such file"),
    ):
        with pytest.raises(PictureError, match=rf"{name}.*{why}"):
            Picture(name, tmp_path).check()
    for nothing in (None, "", b"", 5, {"url": "x"}, {"bytes": None, "path": None}):
        with pytest.raises(PictureError, match="is no picture"):
            Picture(nothing)
    with pytest.raises(PictureError, match="3 x 900: beyond 1 : 200"):
        Picture(encoded(Image.new("RGB", (3, 900)))).check()


def test_a_decompression_bomb_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(PictureError, match="decompression bomb"):
        Picture(encoded(drawn())).check()


@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(1, 10**5), st.integers(1, 5 * 10**6))
def test_limits_hold_and_the_aspect_is_kept(width: int, height: int, least: int, more: int) -> None:
    most = least + more
    new_width, new_height = fitted_size(width, height, least, most)
    pixels = width * height
    if least <= pixels <= most:
        assert (new_width, new_height) == (width, height)
        return
    scale = ((most if pixels > most else least) / pixels) ** 0.5
    assert abs(new_width - width * scale) <= 1
    assert abs(new_height - height * scale) <= 1
    if pixels > most:
        assert new_width * new_height <= most or 1 in (new_width, new_height)
    else:
        assert new_width * new_height >= least


def test_a_picture_is_resized_between_limits() -> None:
    assert fit_pixels(drawn(size=(400, 100)), max_pixels=10_000).size == (200, 50)
    assert fit_pixels(drawn(size=(40, 10)), min_pixels=10_000).size == (200, 50)
    small = drawn()
    assert fit_pixels(small, 100, 10_000) is small
