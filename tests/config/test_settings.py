"""Settings: layers, sources, and mistakes that are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddlewheel.config import load_settings
from paddlewheel.errors import ConfigurationError


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    """Each value says where it came from."""
    file = tmp_path / "paddlewheel.toml"
    file.write_text("[server]\nport = 1\nhost = '::1'\ndrain_s = 7\n")
    environ = {"PADDLEWHEEL_SERVER__PORT": "2", "PADDLEWHEEL_SERVER__HOST": "0.0.0.0"}  # noqa: S104  # never bound
    loaded = load_settings(file, [("server.port", "--port", 3)], environ)
    assert (loaded.settings.server.port, loaded.settings.server.host) == (3, "0.0.0.0")  # noqa: S104  # likewise
    sources = {key: source for key, _, source in loaded.described()}
    assert sources["server.port"] == "--port"
    assert sources["server.host"] == "PADDLEWHEEL_SERVER__HOST"
    assert sources["server.drain_s"] == str(file)
    assert sources["server.data_dir"] == "default"


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("PADDLEWHEEL_SERVER__PROT", "1", "did you mean server.port?"),
        ("PADDLEWHEEL_MODELS__OCR__BATCHING__MAX_QUEU_SIZE", "1", "did you mean models.ocr.batching.max_queue_size?"),
        ("PADDLEWHEEL_SERVER__PORT", "-1", "greater than or equal to 0"),
        ("PADDLEWHEEL_MODELS__OCR__POOL", "other", "expected one of: default"),
    ],
)
def test_a_mistake_names_the_key_its_source_and_what_would_be_right(variable: str, value: str, said: str) -> None:
    """A wrong setting stops the start, with one line that helps."""
    with pytest.raises(ConfigurationError) as caught:
        load_settings(environ={variable: value})
    assert said in caught.value.detail


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    """A file that was asked for must be there and be TOML."""
    with pytest.raises(ConfigurationError, match="does not exist"):
        load_settings(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("[server\n")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_settings(tmp_path / "bad.toml")
