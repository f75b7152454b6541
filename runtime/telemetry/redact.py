"""Keeps secrets out of whatever leaves the process: by the name of a field, by the shape of a text, and by value.

The values of environment variables with a secret's name are remembered at the start and filtered wherever they turn up.
Every pattern is linear in the text, which the caller has bounded.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

HIDDEN = "***"
SHORTEST = 6
"""A secret of fewer characters is not looked for by value: it would hide harmless text."""

_WORDS = (
    r"secret|passw(?:or)?d|passwd|passphrase|pwd|api[_-]?key|access[_-]?key|private[_-]?key|signing[_-]?key|"
    r"account[_-]?key|secret[_-]?key|encryption[_-]?key|authorization|credential|cookie|session[_-]?id|webhook|sas"
)
# `token` alone, not `tokens` or `tokenizer`: those are counted in every language model's logs.
_SECRET_NAME = re.compile(rf"(?i)(?:{_WORDS}|(?<![a-z])(?:auth|bearer)(?![a-z])|tokens?(?=[_-]?secret)|token(?![a-z]))")
_QUANTITY = re.compile(
    r"(?i)^(?:n|num|max|min|total|per)[_-]|[_-](?:count|length|len|id|ids|index|size|limit|rate|per_s)$"
)

_IN_TEXT = (
    # scheme://name:password@host, and scheme://token@host
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]{1,20}://)[^\s/?#\"']{1,512}@"), rf"\g<1>{HIDDEN}@"),
    (re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]{0,16384}(?:-----END [A-Z ]{0,40}-----)?"), HIDDEN),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,4096}"), rf"\g<1> {HIDDEN}"),
    # name=value, name: value, "name": "value", --name value
    (
        re.compile(
            rf"(?i)((?:{_WORDS}|(?<![a-z])token(?![a-z]))[\w-]{{0,32}}[\"']?\s{{0,4}}[=:]\s{{0,4}})"
            rf"(\"[^\"]{{0,4096}}\"|'[^']{{0,4096}}'|[^\s,;&\"'}}\])]{{1,4096}})"
        ),
        rf"\g<1>{HIDDEN}",
    ),
    # shapes that are nothing else: AWS, GitHub, GitLab, Hugging Face, OpenAI and kin, Slack, Google, JWT
    (
        re.compile(
            r"\b(?:A[KS]IA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{20,255}|github_pat_\w{20,255}|glpat-[\w-]{20,255}|"
            r"hf_[A-Za-z0-9]{20,255}|sk-[\w-]{20,255}|xox[abeoprs]-[\w-]{10,255}|AIza[\w-]{30,60}|pypi-[\w-]{16,512}|"
            r"eyJ[\w-]{8,4096}\.[\w-]{8,4096}(?:\.[\w-]{0,4096})?)"
        ),
        HIDDEN,
    ),
)


# --name value: what stands before the name's last word is looked at only where that word was found.
_OPTION = re.compile(rf"(?i)((?:{_WORDS}|(?<![a-z])token)\s{{1,4}})[^\s-]\S{{0,4095}}")
_OPTION_BEFORE = re.compile(r"(?:^|\s)--?[\w-]{0,64}$")
_NO_SECRET = frozenset({"PWD", "OLDPWD"})
"""Variables that are named like a password, and are the working folder."""


def secret_name(name: str) -> bool:
    """Whether a field, header or variable of this name holds a secret."""
    return bool(_SECRET_NAME.search(name)) and not _QUANTITY.search(name)


class Redactor:
    """Filters values. `environment` is where secrets are known by value."""

    def __init__(self, environment: Mapping[str, str] | None = None, known: Iterable[str] = ()) -> None:
        values = {value for name, value in (environment or {}).items() if secret_name(name) and name not in _NO_SECRET}
        values |= set(known)
        # Headers come as name=value,name=value: each value is a secret of its own.
        for name, value in (environment or {}).items():
            if name.upper().endswith("_HEADERS"):
                values |= {each.partition("=")[2].strip() for each in value.split(",")}
        ordered = sorted((each for each in values if len(each) >= SHORTEST), key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def text(self, text: str) -> str:
        """The text with every secret in it hidden."""
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        for pattern, instead in _IN_TEXT:
            text = pattern.sub(instead, text)
        return _OPTION.sub(_option, text)

    def value(self, name: str, value: Any) -> Any:
        """A field's value, filtered by its name and by what is in it, all the way down.

        Numbers stay unless the name is a password's: a count is not a secret.
        """
        if value is None or isinstance(value, bool):
            return value
        if secret_name(name):
            if isinstance(value, int | float) and "token" in name.lower():
                return value
            return HIDDEN
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(str(key)): self.value(str(key), each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.value("", each) for each in value]
        return value

    def fields(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """All fields of an event, filtered."""
        return {self.text(key): self.value(key, each) for key, each in fields.items()}


def _option(found: re.Match[str]) -> str:
    before = found.string[max(0, found.start() - 68) : found.start()]
    return f"{found[1]}{HIDDEN}" if _OPTION_BEFORE.search(before) else found[0]
