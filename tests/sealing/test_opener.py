"""Freshness, restarts, rotation, identities, bounds."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sealing.peers import GROUP, Peer, meet, settle

from roamcast.broker.store import StoreFullError
from roamcast.sealing import (
    HANDSHAKE,
    FrameOpener,
    GroupKey,
    Identity,
    KeyRing,
    Refusal,
    Sealer,
    reserve_epoch,
)
from roamcast.sealing.frame import NONCE
from roamcast.sealing.opener import (
    AHEAD,
    ASKS_MAX,
    IDLE_TURNS,
    LIST_MAX,
    PINS_MAX,
    REACH,
    UNPROVEN_MAX,
    WAITING_MAX,
    encode,
)

NEXT = GroupKey(bytes(range(1, 33)))


def test_two_nodes_prove_themselves_with_three_announcements() -> None:
    a, b = Peer(1), Peer(2)
    assert b.refusal(a.seal(b"beacon")) is Refusal.UNPROVEN
    assert settle(a, b) == 3
    assert b.open(a.seal(b"x"))[:3] == (1, 1, b"x") and a.open(b.seal(b"y"))[:3] == (2, 1, b"y")
    assert meet(a, b) == 0  # and then no more


def test_a_node_that_announces_itself_at_boot_is_proven_after_two_more() -> None:
    a, b = Peer(1), Peer(2)
    assert b.refusal(a.opener.announcement()) is Refusal.UNPROVEN
    assert settle(a, b) == 2
    assert b.opener.proven() == [1] and a.opener.proven() == [2]


def test_many_nodes_at_one_place_need_a_few_announcements_each() -> None:
    peers = [Peer(n) for n in range(1, 13)]
    sent = meet(*peers)
    assert all(len(peer.opener.proven()) == 11 for peer in peers)
    assert sent <= 3 * len(peers)


def test_a_recording_from_before_the_receiver_knew_the_sender_is_refused() -> None:
    a, b = Peer(1), Peer(2)
    recording = [a.seal(b"old"), a.opener.announcement()]
    assert [b.refusal(frame) for frame in recording] == [Refusal.UNPROVEN] * 2
    meet(a, b)
    assert [b.refusal(frame) for frame in recording] == [Refusal.REPLAYED] * 2


def test_a_restarted_receiver_accepts_nothing_old_and_everything_new() -> None:
    a, b = Peer(1), Peer(2)
    recording: list[bytes] = []
    a.refusal(b.seal(b"beacon"))
    while a.opener.announcement_due or b.opener.announcement_due:
        for one, other in ((a, b), (b, a)):
            if one.opener.announcement_due:
                frame = one.opener.announcement()
                recording += [frame] if one is a else []
                other.refusal(frame)
    recording += [a.seal(b"data") for _ in range(5)]
    assert b.refusal(recording[-1]) is None
    unheard = a.seal(b"recorded, but never heard by b")
    b.restart()
    for _ in range(2):
        assert {b.refusal(frame) for frame in [*recording, unheard]} == {Refusal.UNPROVEN}
        settle(b)  # the attacker answers nothing
    meet(a, b)
    assert {b.refusal(frame) for frame in [*recording, unheard]} == {Refusal.REPLAYED}
    assert b.open(a.seal(b"new")).payload == b"new"


def test_a_restarted_sender_is_accepted_and_its_earlier_boot_is_not() -> None:
    a, b = Peer(1), Peer(2)
    meet(a, b)
    old, old_announcement = a.seal(b"old, unheard"), a.opener.announcement()
    a.restart()
    assert b.refusal(a.seal(b"new boot")) is Refusal.UNPROVEN
    settle(a, b)
    assert b.open(a.seal(b"new")).payload == b"new"
    assert b.refusal(old) is Refusal.STALE_EPOCH
    assert b.refusal(old_announcement) is Refusal.STALE_EPOCH


def test_an_answer_recorded_before_the_sender_restarted_does_not_bring_its_old_boot_back() -> None:
    a, b = Peer(1), Peer(2)
    b.refusal(a.seal(b"beacon"))
    a.refusal(b.opener.announcement())
    answer = a.opener.announcement()  # echoes b's nonce, which is still good
    data = a.seal(b"data")
    assert b.refusal(answer) is None and b.refusal(data) is None
    a.restart()
    meet(a, b)
    assert b.refusal(answer) is Refusal.STALE_EPOCH
    assert b.refusal(data) is Refusal.STALE_EPOCH


@pytest.mark.parametrize("how", ["idle", "forgotten", "pushed out"])
def test_a_sender_that_is_forgotten_cannot_be_brought_back_by_a_recording(how: str) -> None:
    a, b = Peer(1), Peer(2)
    b.refusal(a.seal(b"beacon"))
    a.refusal(b.opener.announcement())
    recording = [a.opener.announcement(), a.seal(b"data")]
    assert [b.refusal(frame) for frame in recording] == [None, None]
    match how:
        case "idle":
            for _ in range(IDLE_TURNS):
                assert b.opener.proven() == [1]
                b.opener.turn()
        case "forgotten":
            b.opener.forget(1)
        case "pushed out":
            b.push_out(1)
    assert 1 not in b.opener.proven()
    assert [b.refusal(frame) for frame in recording] == [Refusal.UNPROVEN] * 2
    meet(a, b)
    assert b.refusal(a.seal(b"new")) is None


def test_a_sender_that_is_heard_stays_proven() -> None:
    a, b = Peer(1), Peer(2)
    meet(a, b)
    for _ in range(5 * IDLE_TURNS):
        b.opener.turn()
        a.opener.turn()
        assert b.refusal(a.seal(b"x")) is None and a.refusal(b.seal(b"x")) is None
        assert meet(a, b) == 0


@settings(max_examples=40)
@given(
    st.lists(
        st.sampled_from(
            [
                "a",
                "b",
                "ab",
                "data",
                "restart a",
                "restart b",
                "turn",
                "forge",
                "forge far",
                "leap",
                "new disk",
            ]
        ),
        max_size=40,
    )
)
def test_whatever_is_lost_and_whoever_restarts_no_frame_is_accepted_twice_and_they_come_together_again(
    steps: list[str],
) -> None:
    """An attacker records everything and plays all of it after each step. A member seals in a's name."""
    a, b = Peer(1), Peer(2)
    recording: list[bytes] = []
    accepted: set[bytes] = set()

    def play(receiver: Peer, frame: bytes) -> None:
        if receiver.refusal(frame) is None:
            assert frame not in accepted, "accepted twice"
            accepted.add(frame)

    for step in steps:
        match step:
            case "a" | "b":  # this one's announcement is lost on the way to the other, not to the attacker
                recording.append({"a": a, "b": b}[step].opener.announcement())
            case "ab":
                for one, other in ((a, b), (b, a)):
                    frame = one.opener.announcement()
                    recording.append(frame)
                    play(other, frame)
            case "data":
                for one, other in ((a, b), (b, a)):
                    frame = one.seal(b"data")
                    recording.append(frame)
                    play(other, frame)
            case "restart a":
                a.restart()
            case "restart b":
                b.restart()
            case "forge" | "forge far":
                ahead = {"forge": REACH + 10, "forge far": 10 * AHEAD}[step]
                play(b, forged(a, a.sealer.counter + ahead, stream=len(recording) % 2))
            case "leap":  # a is busy with others
                a.sealer.counter += 10_000
            case "new disk":
                a.stable.clear()
                a.restart()
            case "turn":
                a.opener.turn()
                b.opener.turn()
        for frame in recording[-30:]:
            play(a, frame)
            play(b, frame)
    for _ in range(3):
        meet(a, b)
    assert a.refusal(b.seal(b"x")) is None and b.refusal(a.seal(b"x")) is None


def test_a_group_changes_its_key_without_losing_a_frame() -> None:
    peers = [Peer(n) for n in (1, 2, 3)]
    meet(*peers)

    def all_hear_all() -> None:
        for one in peers:
            frame = one.seal(b"x")
            assert all(other.refusal(frame) is None for other in peers if other is not one)

    for ring in (KeyRing(GROUP, NEXT), KeyRing(NEXT, GROUP), KeyRing(NEXT)):
        for peer in peers:  # one after the other, as people do
            peer.replace_keys(ring)
            all_hear_all()
    old = Peer(4)  # a stolen device with the old key alone
    assert peers[0].refusal(old.seal(b"x")) is Refusal.UNKNOWN_KEY
    assert old.refusal(peers[0].seal(b"x")) is Refusal.UNKNOWN_KEY


def test_rings_and_keys_that_cannot_be_are_refused_in_one_line() -> None:
    ring = KeyRing.from_texts([GROUP.to_text(), NEXT.to_text()])
    assert ring.sending == GROUP and list(ring.by_id) == [GROUP.id, NEXT.id]
    assert GROUP.to_text().removeprefix("group:") not in repr(ring) + repr(GROUP)
    for texts, problem in [
        ([], "group keys: are none"),
        (["group:AAAA"], "group key: has 3 octets, must have 32"),
        (["hunter2"], "group key: must begin with 'group:'"),
        (["group:!"], "group key: is no base64"),
        ([GroupKey(bytes([n]) * 32).to_text() for n in range(9)], "group keys: are 9, at most 8"),
    ]:
        with pytest.raises(Exception, match=problem) as raised:
            KeyRing.from_texts(texts)
        assert "hunter2" not in str(raised.value)


def test_identities_have_a_text_form_and_numbers_of_their_own() -> None:
    identity = Identity.generate()
    assert Identity.from_text(identity.to_text()).public_key == identity.public_key
    assert 65_536 <= identity.node < 2**31 and Identity.from_text(identity.to_text()).node == identity.node
    assert Identity.from_text(identity.to_text(), 7).node == 7
    assert identity.to_text() not in repr(identity)
    with pytest.raises(Exception, match="node: is 70000; a configured number is from 0 to 65535"):
        Identity.from_text(identity.to_text(), 70_000)


def test_a_number_that_is_known_by_one_key_is_not_given_to_another() -> None:
    a, b, thief = Peer(1), Peer(2), Peer(1)
    meet(a, b)
    b.restart()  # the pin is durable
    b.refusal(thief.seal(b"x"))
    thief.refusal(b.opener.announcement())
    claim = thief.opener.announcement()
    assert b.refusal(claim) is Refusal.IDENTITY
    assert b.refusal(thief.seal(b"x")) is Refusal.UNPROVEN
    b.opener.forget(1)  # an operator: the device was replaced
    meet(b, thief)
    assert b.refusal(thief.seal(b"x")) is None
    assert b.opener.public_key(1) == thief.identity.public_key


def test_a_claim_of_a_present_number_in_the_same_epoch_is_noticed_by_the_announcement() -> None:
    """Two boards without storage that start in the same eighth of a second have the same epoch."""
    a, b, thief = Peer(1), Peer(2), Peer(1)
    meet(a, b)
    assert thief.epoch == a.epoch, "else the case is another one"
    for _ in range(10):  # past the counters that the window has seen
        thief.seal(b"x")
    assert b.refusal(thief.opener.announcement()) is Refusal.IDENTITY
    assert b.opener.public_key(1) == a.identity.public_key


def test_an_announcement_carries_what_its_sender_says_of_itself() -> None:
    a, b = Peer(1), Peer(2)
    a.profile = b"what I am"
    meet(a, b)
    a.profile = b"what I am by now"
    assert b.opener.open(a.opener.announcement()).payload == b"what I am by now"
    assert a.opener.open(b.opener.announcement()).payload == b""
    # Another member can seal a frame in its name, but not sign an announcement: nothing of it is believed.
    forger = Peer(3)
    forger.identity.node, forger.identity.public_key = 1, a.identity.public_key
    forger.profile = b"what I am not"
    forger.sealer = Sealer(forger.identity, a.ring, a.epoch, True, a.sealer.counter)
    forger.opener = FrameOpener(forger.sealer, {}, {}, forger)
    assert b.opener.open(forger.opener.announcement()).payload == b""


def test_a_derived_number_belongs_to_its_key_even_at_first_sight() -> None:
    a, b = Peer(None), Peer(2)
    forger = Peer(3)
    forger.identity.node = a.node
    forger.restart()
    b.refusal(forger.seal(b"x"))
    forger.refusal(b.opener.announcement())
    assert b.refusal(forger.opener.announcement()) is Refusal.IDENTITY
    assert not any(name.startswith("sealing pin") for name in b.stable)


def test_a_member_cannot_answer_for_another_by_changing_its_announcement() -> None:
    """An insider has the group key, so it can seal as node 1; it cannot sign as node 1."""
    a, b, insider = Peer(1), Peer(2), Peer(3)
    meet(a, b)
    b.restart()
    as_a = Sealer(insider.identity, insider.ring, a.epoch + 1)
    as_a.identity = Identity(insider.identity._private_bytes, 1)
    as_a.replace_keys(insider.ring)
    b.refusal(as_a.seal(1, b"x"))
    insider.refusal(b.opener.announcement())
    nonce_of_b = b.opener._nonces[0]
    frame = as_a.seal_announcement(
        HANDSHAKE,
        lambda position: (
            a.identity.public_key + encode(as_a.identity, position, bytes(8), [(2, nonce_of_b)], [])[32:]
        ),
    )
    assert b.refusal(frame) is Refusal.BAD_SIGNATURE


@pytest.mark.parametrize("ahead", [10 * AHEAD, -10 * AHEAD])
def test_a_member_cannot_say_where_another_is(ahead: int) -> None:
    """By an announcement in its name, with its public key and b's nonce, and a signature of its own."""
    a, b, insider = Peer(1), Peer(2), Peer(3)
    meet(a, b)
    b.refusal(forged(a, a.sealer.counter + 20 * AHEAD))  # so b asks a, by a new nonce
    b.opener.announcement()
    as_a = Sealer(a.identity, a.ring, a.epoch, first=a.sealer.counter + ahead)
    false = as_a.seal_announcement(
        HANDSHAKE,
        lambda position: (
            a.identity.public_key
            + encode(insider.identity, position, bytes(8), [(2, b.opener._nonces[0])], [])[32:]
        ),
    )
    assert b.refusal(false) is Refusal.DISTANT
    assert b.open(a.seal(b"x")).payload == b"x", "its window stays where it is"


def test_our_own_frames_come_back_and_a_copy_of_us_is_noticed() -> None:
    a = Peer(1)
    assert a.refusal(a.seal(b"x")) is Refusal.OWN
    assert a.refusal(a.opener.announcement()) is Refusal.OWN
    copy = Peer(1)
    copy.stable = dict(a.stable)
    copy.restart()
    assert a.refusal(copy.seal(b"x")) is Refusal.OWN
    assert a.refusal(copy.opener.announcement()) is Refusal.CLASH
    copy.identity = a.identity
    copy.restart()
    with pytest.raises(Exception, match="a copy of our identity is in the network"):
        a.open(copy.opener.announcement())


def test_outsiders_make_no_state_and_past_peers_are_forgotten() -> None:
    b = Peer(0)
    outsider = Peer(1, KeyRing(GroupKey(bytes(32))))
    tables = ("_unproven", "_echoes", "_asked", "_tries", "_pins")
    for n in range(3_000):
        frame = bytearray(outsider.seal(b"x"))
        frame[2:8] = GROUP.id.to_bytes(2, "big") + n.to_bytes(4, "big")
        b.refusal(bytes(frame))
    assert [len(getattr(b.opener, table)) for table in tables] == [0] * 5
    assert not b.senders
    for _ in range(3_000):  # members that come by once and never again
        passer = Peer.__new__(Peer)
        passer.identity, passer.ring, passer.encrypt = PASSER, b.ring, True
        PASSER.node += 1
        passer.stable, passer.profile = {}, b""
        passer.restart()
        b.refusal(passer.seal(b"x"))
    assert len(b.opener._unproven) == UNPROVEN_MAX and len(b.opener._asked) == WAITING_MAX
    assert len(b.opener._tries) <= WAITING_MAX
    for _ in range(WAITING_MAX // LIST_MAX):
        b.opener.announcement()
        assert b.opener.announcement_due
    b.opener.announcement()
    assert not b.opener.announcement_due
    for _ in range(IDLE_TURNS):
        b.opener.turn()
    assert [len(getattr(b.opener, table)) for table in tables[1:]] == [0] * 4


PASSER = Identity.generate(10)


def test_pins_are_bounded() -> None:
    b = Peer(0)
    for n in range(PINS_MAX + 10):
        b.opener._pin(n + 1, bytes(32))
    assert len(b.opener._pins) == PINS_MAX == len([name for name in b.stable if "pin" in name])
    assert 10 not in b.opener._pins and 11 in b.opener._pins


def test_a_recording_played_without_end_makes_us_announce_ourselves_a_few_times_only() -> None:
    a, b = Peer(1), Peer(2)
    frame = a.seal(b"recorded")
    announced = 0
    for _ in range(1_000):
        b.refusal(frame)
        if b.opener.announcement_due:
            b.opener.announcement()
            announced += 1
    assert announced == ASKS_MAX + 1_000 // ASKS_MAX - 1


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=20))
def test_no_nonce_is_used_twice_whenever_the_node_crashes(boots: list[tuple[int, bool]]) -> None:
    """Each boot seals some frames, with a key change in between or not, then dies. Of a boot that dies while
    it reserves its epoch, the write has happened or not: the copy of the storage says so."""
    stable: dict[str, bytes] = {}
    identity = Identity.generate(1)
    nonces: set[bytes] = set()
    for frames, wrote in boots:
        before = dict(stable)
        epoch = reserve_epoch(stable, draw=lambda below: 0)
        if not wrote:
            stable = before  # it died before the write was durable, so it sealed nothing
            continue
        sealer = Sealer(identity, KeyRing(GROUP), epoch)
        for n in range(frames):
            if n == 2:
                sealer.replace_keys(KeyRing(NEXT, GROUP))
            nonce = sealer.seal(1, b"x", stream=n % 4)[NONCE]
            assert nonce not in nonces
            nonces.add(nonce)


def test_an_epoch_is_written_down_before_it_is_used_and_begins_at_the_clock() -> None:
    stable: dict[str, bytes] = {}
    assert reserve_epoch(stable, 1_767_225_600 + 125.0, draw=lambda below: 5) == 1 + 7 * 128 + 5
    assert reserve_epoch(stable, 0.0) == 903  # stored: the clock does not matter
    assert int.from_bytes(stable["sealing epoch"], "big") == 903
    assert reserve_epoch({}, 5.0, draw=lambda below: below - 1) == 2**31
    assert reserve_epoch({}, 2_300_000_000.0) < 2**32  # in 2042
    stable["sealing epoch"] = (2**32 - 1).to_bytes(4, "big")
    with pytest.raises(Exception, match="storage: has used up all epochs"):
        reserve_epoch(stable)


class Full(dict[str, bytes]):
    def __setitem__(self, key: str, value: bytes) -> None:
        raise StoreFullError("disk full")


def test_boots_that_begin_with_the_same_saved_clock_share_no_nonce() -> None:
    """A board without a battery and without storage, whose clock is set to the last saved time at each boot
    (fake-hwclock). By chance two boots in 128 have the same epoch; their counters begin far apart."""
    identity, ring = Identity.generate(), KeyRing(GROUP)
    nonces: set[bytes] = set()
    for _ in range(500):
        sealer = Sealer(identity, ring, reserve_epoch({}, 1_800_000_000.0))
        nonces |= {sealer.seal(1, b"x")[NONCE] for _ in range(20)}
    assert len(nonces) == 10_000


def test_a_node_whose_disk_takes_nothing_has_an_epoch_of_chance() -> None:
    full = Full({"sealing epoch": (7).to_bytes(4, "big")})
    drawn: list[int] = []

    def draw(below: int) -> int:
        drawn.append(below)
        return 4_000_000_000

    assert reserve_epoch(full, draw=draw) == 4_000_000_001 and drawn == [2**32 - 1]


def forged(a: Peer, counter: int, stream: int = 0) -> bytes:
    """A data frame that another member seals in a's name."""
    return Sealer(a.identity, a.ring, a.epoch, first=counter - 1).seal(1, b"", stream)


@pytest.mark.parametrize("stream", [0, 1])
@pytest.mark.parametrize("steps", [(2**40 - 2,), (REACH + 900,), (AHEAD, 2 * AHEAD - 1), (-REACH - 5,)])
def test_frames_in_a_members_name_silence_it_for_one_exchange(steps: tuple[int, ...], stream: int) -> None:
    a, b, c = Peer(1), Peer(2), Peer(3)
    meet(a, b, c)
    for step in steps:
        b.refusal(forged(a, min(a.sealer.counter + step, 2**40 - 2), stream))
    b.refusal(a.seal(b"perhaps refused", stream=stream))
    assert settle(a, b, c) <= 3
    assert b.open(a.seal(b"heard again", stream=stream)).payload == b"heard again"
    assert b.open(a.seal(b"and so is the other", stream=1 - stream)).payload
    assert c.open(a.seal(b"others have not noticed")).payload


def test_a_member_that_was_busy_with_others_is_heard_after_one_exchange() -> None:
    a, b = Peer(1), Peer(2)
    meet(a, b)
    a.sealer.counter += AHEAD - 1
    assert b.refusal(a.seal(b"within reach")) is None
    a.sealer.counter += 10 * AHEAD
    assert b.refusal(a.seal(b"too far")) is Refusal.DISTANT
    assert settle(a, b) == 2
    assert b.open(a.seal(b"x")).payload == b"x"


def test_an_answer_that_is_older_than_what_was_accepted_moves_no_window_back() -> None:
    """An attacker keeps the sender's answer away, and plays it after a window's worth of frames."""
    a, b = Peer(1), Peer(2)
    meet(a, b)
    old = [a.seal(b"early") for _ in range(3)]
    for _ in range(REACH):
        a.seal(b"to others")
    assert b.refusal(a.seal(b"late")) is None
    assert b.refusal(old[0]) is Refusal.DISTANT  # so b asks a, by a new nonce
    a.refusal(b.opener.announcement())
    answer = a.opener.announcement()
    frames = [a.seal(b"data") for _ in range(REACH + 5)]
    assert [b.refusal(frame) for frame in frames] == [None] * len(frames)
    assert b.refusal(answer) is Refusal.DISTANT
    assert all(b.refusal(frame) is not None for frame in frames)


def test_a_sender_whose_epoch_went_back_is_accepted_at_once_and_its_other_boot_is_not() -> None:
    a, b = Peer(1), Peer(2)
    a.stable["sealing epoch"] = (5_000).to_bytes(4, "big")
    a.restart()
    meet(a, b)
    old, announcement = a.seal(b"unheard"), a.opener.announcement()
    a.stable.clear()  # a new disk
    a.restart()
    assert a.epoch < 5_000 and b.refusal(a.seal(b"new boot")) is Refusal.STALE_EPOCH
    settle(a, b)
    assert b.open(a.seal(b"new")).payload == b"new"
    assert [b.refusal(one) for one in (old, announcement)] == [Refusal.UNPROVEN] * 2


def test_a_pin_that_cannot_be_stored_does_not_stop_the_node() -> None:
    a, b = Peer(1), Peer(2)
    b.opener = FrameOpener(b.sealer, Full(), b.senders, b)
    meet(a, b)
    assert b.opener.proven() == [1] and b.opener.public_key(1) == a.identity.public_key
