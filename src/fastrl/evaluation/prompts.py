"""Questions as the text that a model reads, for every engine the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PIL import Image
from transformers import AutoProcessor

from fastrl.evaluation.engines import EngineSettings, model_place
from fastrl.evaluation.questions import Question, conversation


class Prompts:
    """A model's processor and how questions are put to it.

    Args:
        settings: the model, the system prompt and the limits of pictures.

    Raises:
        ValueError: there is no processor, or it has no chat template.
    """

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        place = model_place(settings.model)
        try:
            self.processor: Any = AutoProcessor.from_pretrained(place)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"model {settings.model!r}: neither 'toy', nor a folder with a processor or "
                f"tokenizer, nor a hub name that can be reached ({error})."
            ) from error
        # A processor holds its tokenizer; a text model's "processor" is the tokenizer itself.
        self.tokenizer: Any = getattr(self.processor, "tokenizer", self.processor)
        self.takes_pictures = hasattr(self.processor, "image_processor")
        if not (
            getattr(self.processor, "chat_template", None)
            or getattr(self.tokenizer, "chat_template", None)
        ):
            raise ValueError(
                f"model {settings.model!r}: it has no chat template; put one beside it as "
                "chat_template.jinja."
            )

    def text(self, question: Question) -> str:
        """The words of a prompt, a mark where each picture goes.

        Raises:
            ValueError: the question has pictures and the model takes none.
        """
        if question.pictures and not self.takes_pictures:
            raise ValueError(
                f"model {self.settings.model!r} reads text alone, but question {question.id} has a "
                "picture; choose a vision-language model."
            )
        messages = conversation(question, self.settings.system, self.settings.examples)
        rendered: str = self.processor.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=False
        )
        return rendered

    def pictures(self, question: Question) -> list[Image.Image]:
        """The pictures of a question, read and resized now."""
        limits = (self.settings.min_pixels, self.settings.max_pixels)
        return [picture.open(*limits) for picture in question.pictures]

    def inputs(self, questions: Sequence[Question]) -> Any:
        """The model's inputs for several questions, padded on the left."""
        texts = [self.text(question) for question in questions]
        if not any(question.pictures for question in questions):
            return self.tokenizer(
                texts,
                padding=True,
                padding_side="left",
                add_special_tokens=False,
                return_tensors="pt",
            )
        return self.processor(
            text=texts,
            images=[self.pictures(question) for question in questions],
            padding=True,
            padding_side="left",
            return_tensors="pt",
        )
