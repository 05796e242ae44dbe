"""How completions are drawn: named presets, or temperature and top-p of one's own."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Sampling:
    """How completions are drawn.

    Attributes:
        temperature: 0 is greedy.
        top_p: the share of probability that is drawn from, above 0 and at most 1.
        max_new_tokens: the longest completion, in tokens.
    """

    temperature: float
    top_p: float = 1.0
    max_new_tokens: int = 2048

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is always taken."""
        return self.temperature == 0


PRESETS = {
    "greedy": Sampling(temperature=0.0),
    # What the published runs validate with.
    "validation": Sampling(temperature=0.6, top_p=0.95),
    "training": Sampling(temperature=1.0),
}


def build_sampling(
    preset: str | None,
    temperature: float | None,
    top_p: float | None,
    max_new_tokens: int,
    samples: int,
) -> Sampling:
    """A preset with the user's changes.

    Args:
        preset: a name of `PRESETS`; by default "greedy" for one sample, else "validation".
        temperature, top_p: replace the preset's.
        max_new_tokens: the longest completion.
        samples: completions of each question.

    Raises:
        ValueError: lists every value that cannot be used.
    """
    problems = []
    name = preset or ("greedy" if samples == 1 else "validation")
    if name not in PRESETS:
        problems.append(f"--sampling {name}: expected one of {', '.join(PRESETS)}")
    sampling = replace(PRESETS.get(name, PRESETS["greedy"]), max_new_tokens=max_new_tokens)
    if temperature is not None:
        sampling = replace(sampling, temperature=temperature)
    if top_p is not None:
        sampling = replace(sampling, top_p=top_p)
    if not 0 <= sampling.temperature <= 10:
        problems.append(f"--temperature {sampling.temperature}: expected 0 (greedy) to 10")
    if not 0 < sampling.top_p <= 1:
        problems.append(f"--top_p {sampling.top_p}: expected above 0 and at most 1")
    if max_new_tokens < 1:
        problems.append(f"--max_new_tokens {max_new_tokens}: expected at least 1")
    if samples < 1:
        problems.append(f"--samples {samples}: expected at least 1")
    elif samples > 1 and sampling.is_greedy and not problems:
        problems.append(
            f"--samples {samples}: greedy decoding gives the same completion each time; choose "
            "--sampling validation, or a temperature above 0"
        )
    if problems:
        raise ValueError("; ".join(problems) + ".")
    return sampling
