"""Passwords: as hashes, guessed slowly, and quick for who knows them."""

import time

import pytest

from roamcast.errors import InputError, ScenarioError
from roamcast.gateway.access import (
    GUESS_EVERY,
    GUESSES_AT_ONCE,
    HASHES_AT_ONCE,
    Accounts,
    check_passwords,
    hashed,
)
from roamcast.units import SECOND

WORD = "correct horse"
HASH = hashed(WORD)


def test_a_hash_tells_nothing_of_the_password_and_lets_its_user_in() -> None:
    assert HASH.startswith("scrypt:13:") and "horse" not in HASH and hashed(WORD) != HASH
    accounts = Accounts({"ada": HASH})
    assert accounts.admission("ada", WORD.encode(), "10.0.0.1", 0) == "yes"
    assert accounts.admission("ada", HASH.encode(), "10.0.0.1", 0) == "no"
    assert accounts.admission("ada", b"wrong", "10.0.0.1", 0) == "no"
    assert accounts.admission("bob", WORD.encode(), "10.0.0.1", 0) == "no"
    assert accounts.admission("ada", None, "10.0.0.1", 0) == "no"
    assert not Accounts({})


def test_a_password_in_clear_still_works() -> None:
    accounts = Accounts({"ada": "in clear"})
    assert accounts.admission("ada", b"in clear", "", 0) == "yes"
    assert accounts.admission("ada", b"in cleaR", "", 0) == "no"


def test_guesses_are_slowed_by_name_and_address_and_who_is_known_is_not() -> None:
    accounts = Accounts({"ada": "long password", "bob": "another one"})
    assert accounts.admission("ada", b"long password", "10.0.0.9", 0) == "yes"
    guesses = [accounts.admission("ada", b"guess", "10.0.0.9", 0) for _ in range(20)]
    assert guesses == ["no"] * (GUESSES_AT_ONCE - 1) + ["later"] * (21 - GUESSES_AT_ONCE)
    assert accounts.admission("ada", b"long password", "10.0.0.9", 0) == "yes"
    assert accounts.admission("bob", b"another one", "10.0.0.9", 0) == "yes"
    day = [accounts.admission("ada", b"guess", "10.0.0.9", at * SECOND) for at in range(1, 3_601)]
    assert day.count("no") == pytest.approx(3_600 * SECOND / GUESS_EVERY, rel=0.01)


def test_guesses_from_many_addresses_take_a_bounded_share_of_the_processor() -> None:
    accounts = Accounts({"ada": HASH})
    began = time.process_time()
    found = [accounts.admission("ada", b"guess", f"10.0.{n // 256}.{n % 256}", 0) for n in range(5_000)]
    one = time.process_time()
    hashed(WORD)
    assert found.count("no") == HASHES_AT_ONCE
    assert one - began < 3 * HASHES_AT_ONCE * (time.process_time() - one) + 0.5


def test_a_right_password_costs_a_hash_once() -> None:
    accounts = Accounts({"ada": HASH})
    assert all(accounts.admission("ada", WORD.encode(), "10.0.0.1", 0) == "yes" for _ in range(1_000))


def test_what_is_no_hash_is_said_to_be_none_without_repeating_it() -> None:
    for text in ("scrypt:13:x:y", HASH[:-4], HASH.replace(":13:", ":30:"), HASH + "=", "scrypt:"):
        with pytest.raises(ScenarioError, match=r"mqtt\.users\.ada: is no hash of a password") as refused:
            check_passwords("mqtt.users", {"ada": text})
        assert text not in str(refused.value) or text == "scrypt:"


def test_a_short_password_is_not_hashed() -> None:
    with pytest.raises(InputError, match="8 characters and more"):
        hashed("short")
