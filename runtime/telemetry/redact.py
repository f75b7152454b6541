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
    r"account[_-]?key|secret[_-]?key|encryption[_-]?key|authorization|credential|cookie|session[_-]?id|webhook|"
    r"(?<![a-z])sas(?![a-z])|(?:access|api|auth|bot|id|refresh|sas|security|session)token(?![a-z])"
)
_SECRET_WORD = re.compile(rf"(?i){_WORDS}|(?<![a-z])(?:auth|bearer)(?![a-z])")
# `token` alone, not `tokens` or `tokenizer`: those are counted in every language model's logs.
_TOKEN = re.compile(r"(?i)tokens?(?=[_-]?secret)|token(?![a-z])")
_QUANTITY = re.compile(
    r"(?i)^(?:n|num|max|min|total|per)[_-]|[_-](?:count|length|len|id|ids|index|size|limit|rate|per_s)$"
)
_PLACE = re.compile(r"(?i)[_-](?:file|path|dir|folder|sock|socket)$")
"""Ends of names that say where a secret is kept, and hold none."""
_FILE = re.compile(r"(?:~|\.{1,2})?/[^\s:]{1,4096}\.[a-z]{2,5}")
"""A value that is a file's path: GOOGLE_APPLICATION_CREDENTIALS."""

_IN_TEXT = (
    # scheme://name:password@host, and scheme://token@host
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]{1,20}://)[^\s/?#\"']{1,512}@"), rf"\g<1>{HIDDEN}@"),
    (re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]{0,16384}(?:-----END [A-Z ]{0,40}-----)?"), HIDDEN),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,4096}"), rf"\g<1> {HIDDEN}"),
)
# Shapes that are nothing else: AWS, GitHub, GitLab, Hugging Face, OpenAI and kin, Slack, Google, PyPI, JWT.
_SHAPES = re.compile(
    r"\b(?:A[KS]IA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{20,255}|github_pat_\w{20,255}|glpat-[\w-]{20,255}|"
    r"hf_[A-Za-z0-9]{20,255}|sk-(?=[\w-]{0,255}[A-Z0-9])[\w-]{20,255}|xox[abeoprs]-[\w-]{10,255}|AIza[\w-]{30,60}|"
    r"pypi-AgE[\w-]{16,512}|eyJ[\w-]{8,4096}\.[\w-]{8,4096}(?:\.[\w-]{0,4096})?)"
)

# name=value, name: value, "name": "value", also where the text was cut off within. What stands before the word is
# looked at only where the word was found.
_NAMED = re.compile(
    rf"(?i)((?:{_WORDS}|(?<![a-z])token(?![a-z])|(?<=[a-z])(?-i:Token)(?![a-z]))[\w-]{{0,32}})"
    rf"[\"']?\s{{0,4}}([=:])\s{{0,4}}(\"[^\"]{{0,4096}}(?:\"|\Z)|'[^']{{0,4096}}(?:'|\Z)|[\"']?[^\s,;&\"'}}\])]{{1,4096}})"
)
_NAME_BEFORE = re.compile(r"[\w.+@-]*$")
_NUMBERS = re.compile(r"[\[\d]|None\b|null\b")
# --name value
_OPTION = re.compile(rf"(?i)((?:{_WORDS}|(?<![a-z])token)\s{{1,4}})[^\s-]\S{{0,4095}}")
_OPTION_BEFORE = re.compile(r"(?:^|\s)--?[\w-]{0,64}$")
_NO_SECRET = frozenset({"PWD", "OLDPWD"})
"""Variables that are named like a password, and are the working folder."""


def secret_name(name: str) -> bool:
    """Whether a field, header or variable of this name holds a secret."""
    if _PLACE.search(name):
        return False
    return bool(_SECRET_WORD.search(name) or (_TOKEN.search(name) and not _QUANTITY.search(name)))


class Redactor:
    """Filters values. `environment` is where secrets are known by value."""

    def __init__(self, environment: Mapping[str, str] | None = None, known: Iterable[str] = ()) -> None:
        values = {
            value
            for name, value in (environment or {}).items()
            if secret_name(name) and name not in _NO_SECRET and not _FILE.fullmatch(value)
        }
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
        return _OPTION.sub(_option, _SHAPES.sub(HIDDEN, _named(text)))

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


def _named(text: str) -> str:
    """The text without the values of secret names. What is no secret's name is passed over, but not its value, which
    may hold another."""
    kept, at, done = [], 0, 0
    while found := _NAMED.search(text, at):
        if _harmless(text, found):
            at = found.start(3)
            continue
        kept += [text[done : found.start(3)], HIDDEN]
        at = done = found.end()
    return "".join([*kept, text[done:]])


def _harmless(text: str, found: re.Match[str]) -> bool:
    """A folder in a list of paths (/opt/secrets:/usr/lib), a file's name, or a number of tokens."""
    before = _NAME_BEFORE.search(text, max(0, found.start() - 80), found.start())
    first = found.start() if before is None else before.start()
    in_path = text[first - 1 : first] == "/" and found[2] == ":" and text[found.start(3) - 1] == ":"
    if in_path and found[3][0] in "/~.$":
        return True
    name = text[first : found.end(1)]
    return not secret_name(name) and bool(_PLACE.search(name) or _NUMBERS.match(found[3].lstrip("\"'")))


def _option(found: re.Match[str]) -> str:
    before = found.string[max(0, found.start() - 68) : found.start()]
    return f"{found[1]}{HIDDEN}" if _OPTION_BEFORE.search(before) else found[0]
