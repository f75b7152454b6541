"""No secret leaves a process: by name, by shape, by value; and what is no secret stays readable."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.telemetry.redact import HIDDEN, Redactor, secret_name

SECRET = "Xq7rT2mZ9kLw"  # a value that no pattern knows by its shape


@pytest.mark.parametrize(
    "text",
    [
        f"s3://key:{SECRET}@minio.site/bucket",
        f"postgresql+psycopg://user:{SECRET}@p@host:5432/db",
        f"redis://:{SECRET}@host",
        f"https://{SECRET}@github.com/x/y.git",
        f"https://site/path?token={SECRET}&x=1",
        f"https://blob.core.windows.net/c?sv=1&sig=2&sas_token={SECRET}",
        f"password={SECRET}",
        f"PASSWORD : '{SECRET}'",
        f'{{"api_key": "{SECRET}"}}',
        f"{{'client_secret': '{SECRET}'}}",
        f"AWS_SECRET_ACCESS_KEY={SECRET}",
        f"HF_TOKEN={SECRET} WANDB_API_KEY={SECRET}",
        f"Authorization: Bearer {SECRET}",
        f"authorization: basic {SECRET}==",
        f"mc --password {SECRET} ls",
        f"train --hub-token {SECRET}",
        f"Proxy-Authorization={SECRET}",
        f'{{"accessToken": "{SECRET}"}}',
        f"hubToken={SECRET}",
        f"refresh_token={SECRET}",
        f"AZURE_STORAGE_SAS={SECRET}",
        f"PYTHONPATH=/opt/secrets:/usr/lib TOKEN={SECRET}",
        f"/opt/secrets:/usr/lib:password={SECRET}",
        f"AWS_SECRET_ACCESS_KEY=/{SECRET}/abc",
        f"password:/{SECRET}",
        f"/run/secrets/password: {SECRET}",
        f"pad_token_id=0 hub_token_id={SECRET}",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\nabc\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}",
    ],
)
def test_a_secret_in_a_text_is_hidden(text: str) -> None:
    assert SECRET not in Redactor().text(text)
    assert HIDDEN in Redactor().text(text)


@pytest.mark.parametrize(
    "token",
    [
        "AKIA" + "ABCDEFGHIJKLMNOP",
        "ghp_" + "a1B2" * 9,
        "github_pat_" + "a1B2" * 9,
        "glpat-" + "a1B2" * 5,
        "hf_" + "a1B2" * 9,
        "sk-proj-" + "a1B2" * 9,
        "sk-or-v1-" + "0a1b" * 16,
        "pypi-AgEIcHlwaS5vcmc" + "a1B2" * 9,
        "xoxb-" + "1234567890-abcdef",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    ],
)
def test_a_token_of_a_known_shape_is_hidden_wherever_it_stands(token: str) -> None:
    assert token not in Redactor().text(f"could not clone with {token}, giving up")


def test_the_value_of_a_secret_variable_is_hidden_wherever_it_turns_up() -> None:
    redactor = Redactor(
        {
            "SITE_PASSWORD": SECRET,
            "OTEL_EXPORTER_OTLP_HEADERS": "x-team=9hT4vQ2,b=2",
            "PWD": "/home/someone",
            "SSH_AUTH_SOCK": "/run/ssh-1/agent.7",
            "GOOGLE_APPLICATION_CREDENTIALS": "/home/someone/keys/site.json",
            "CLOUD_SECRET_KEY": "/9hT4/vQ2xZ",
        }
    )
    assert redactor.text("/run/ssh-1/agent.7 /home/someone/keys/site.json") == (
        "/run/ssh-1/agent.7 /home/someone/keys/site.json"
    )
    assert "vQ2xZ" not in redactor.text("refused: /9hT4/vQ2xZ")
    assert redactor.text(f"the server said: no such user {SECRET}") == f"the server said: no such user {HIDDEN}"
    assert "9hT4vQ2" not in redactor.text("bad header 9hT4vQ2")
    assert redactor.text("/home/someone/x") == "/home/someone/x"


@given(
    st.recursive(
        st.just(SECRET), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner)
    )
)
def test_a_field_with_a_secret_name_is_hidden_all_the_way_down(value: object) -> None:
    told = Redactor().fields({"config": {"auth": {"password": value}}, "api-key": value, "X-Auth-Token": value})
    assert SECRET not in json.dumps(told)


@given(st.text(max_size=40), st.text(max_size=40))
def test_a_known_secret_is_hidden_between_any_other_text(before: str, after: str) -> None:
    assert SECRET not in Redactor(known=[SECRET]).text(before + SECRET + after)


@pytest.mark.parametrize(
    "fields",
    [
        {"tokens": 4096, "tokens_per_second": 1.5e5, "num_tokens": 7, "tokenizer": "bpe", "max_token_length": 2048},
        {"token": 7},  # the id of a token in a vocabulary
        {"path": "/data/tokens/shard-0001", "keys": 12, "monkey": "see", "key": "layer.0.weight"},
        {"text": "loss 2.31 at step 7: 8 ranks, ratio=0.5 tokens: 512"},
        {"url": "https://minio.site/bucket/key"},
        {"author": "someone", "authored": True, "compass": 1, "passed": 3},
        {"disaster": "none", "kansas": 7, "text": "disaster: nobody knows", "token_path": "/run/token"},
        {"text": "pad_token_id=0, eos_token_id: [2], max_token_length: 2048 token_file=/run/token"},
        {"text": "/opt/sk-learn-contrib-examples/lib and /cache/pypi-simple-index-v1"},
    ],
)
def test_what_is_no_secret_stays(fields: dict[str, object]) -> None:
    assert Redactor().fields(fields) == fields


PARTS = st.text("abcdefgimnprx0123456789._-", min_size=1, max_size=8).filter(lambda part: part[0] not in "-.")
NAMES = st.sampled_from(
    [
        "secrets",
        "my-secrets.d",
        "token",
        "hub_token",
        "credentials",
        "cookies",
        "cookiecutter",
        "sas",
        "api_key",
        "auth",
    ]
)
FOLDERS = st.lists(PARTS | NAMES, min_size=1, max_size=6).map(lambda parts: "/" + "/".join(parts))


@given(
    st.lists(FOLDERS, min_size=1, max_size=8),
    st.sampled_from(["PYTHONPATH=", "PATH=", "--path ", "", '"LD_LIBRARY_PATH": "']),
)
def test_a_list_of_paths_is_no_secret_whatever_its_folders_are_called(folders: list[str], before: str) -> None:
    text = before + ":".join(folders)
    assert Redactor().text(text) == text
    assert Redactor().value("environment", text) == text


@given(
    st.lists(FOLDERS, max_size=4),
    st.sampled_from([":password=", ":token=", " --token ", ' "api_key": "', ":https://x:"]),
)
def test_a_secret_behind_a_list_of_paths_is_hidden(folders: list[str], how: str) -> None:
    end = "@host" if "//" in how else ""
    assert SECRET not in Redactor().text("PYTHONPATH=" + ":".join(folders) + how + SECRET + end)


def test_names_of_secrets_are_told_from_names_of_counts() -> None:
    assert all(map(secret_name, ["token", "hub_token", "HF_TOKEN", "authToken", "api_key", "apiKey", "db.password"]))
    assert all(map(secret_name, ["secret_id", "session_id", "AZURE_STORAGE_SAS", "password_1"]))
    assert not any(map(secret_name, ["tokens", "n_token", "token_count", "tokenizer", "key", "monkey", "author"]))
    assert not any(map(secret_name, ["disaster", "KANSAS", "token_path", "SSH_AUTH_SOCK", "password_file"]))
