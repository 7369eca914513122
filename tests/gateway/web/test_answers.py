"""What a GET gets: files of the page for everyone, documents for users."""

import json
from pathlib import Path

import pytest
from tests.gateway.mqtt.harness import in_loop
from tests.gateway.web.harness import basic, get, serving_web

from roamcast.errors import InputError
from roamcast.gateway.access import GUESSES_AT_ONCE
from roamcast.gateway.web.answers import TILE_BYTES_MAX, Tiles
from roamcast.pages import live_files

PASSWORD = "engine-1843"


@in_loop
async def test_every_file_of_the_page_is_given_out_with_its_type_and_only_users_get_documents() -> None:
    async with serving_web(users={"ada": PASSWORD}) as served:
        kinds = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
        for name, data in live_files().items():
            answer = await served.asked(get(f"/{name}"))
            assert (answer.status, answer.body) == (200, data)
            assert answer.headers["content-type"].startswith(kinds[name.rpartition(".")[2]])
            assert "script-src 'self'" in answer.headers["content-security-policy"]
            again = await served.asked(get(f"/{name}", If_None_Match=answer.headers["etag"]))
            assert (again.status, again.body) == (304, b"")
        assert (await served.asked(get("/", method="HEAD"))).body == b""
        assert (await served.asked(get("/../options.py"))).status == 404
        for authorization in ("", "Bearer x", "Basic !", basic("ada", "guess"), basic("eve", PASSWORD)):
            answer = await served.asked(get("/status.json", Authorization=authorization))
            assert answer.status == 401 and b"node" not in answer.body
        answer = await served.asked(get("/status.json", Authorization=basic("ada", PASSWORD)))
        assert (answer.status, answer.body) == (200, b'{"name": "node-1"}')
        guess = get("/status.json", Authorization=basic("ada", "guess"))
        answers = [await served.asked(guess) for _ in range(GUESSES_AT_ONCE + 1)]
        assert answers[-1].status == 429 and answers[-1].headers["retry-after"] == "2"
        answer = await served.asked(get("/status.json", Authorization=basic("ada", PASSWORD)))
        assert answer.status == 200, "who is known goes on"


def a_folder_of_tiles(folder: Path) -> Path:
    (folder / "14" / "8580").mkdir(parents=True)
    (folder / "14" / "8580" / "5737.png").write_bytes(b"\x89PNG")
    (folder / "15").mkdir()
    (folder / "secret.png").write_bytes(b"no")
    return folder


@in_loop
async def test_tiles_come_from_their_folder_and_nothing_else_does(tmp_path: Path) -> None:
    folder = a_folder_of_tiles(tmp_path / "tiles")
    (folder / "14" / "8580" / "1.png").write_bytes(bytes(TILE_BYTES_MAX + 1))
    users = {"ada": "secret-1"}
    async with serving_web(users, tiles=str(folder)) as served:
        who = {"Authorization": basic("ada", "secret-1")}
        found = await served.asked(get("/tiles.json", **who))
        assert json.loads(found.body) == {"zooms": [14, 15], "kind": "png"}
        tile = await served.asked(get("/tiles/14/8580/5737.png", **who))
        assert (tile.status, tile.body, tile.headers["content-type"]) == (200, b"\x89PNG", "image/png")
        assert (await served.asked(get("/tiles/14/8580/5737.png"))).status == 401
        for path in (
            "14/8580/9.png",
            "14/8580/1.png",
            "secret.png",
            "../alice.toml",
            "14/8580/5737.svg",
            "14/8580",
        ):
            assert (await served.asked(get(f"/tiles/{path}", **who))).status == 404


@in_loop
async def test_a_node_starts_without_its_tiles(caplog: pytest.LogCaptureFixture) -> None:
    async with serving_web(tiles="nowhere") as served:
        assert (await served.asked(get("/tiles.json"))).status == 404
        assert "web.tiles: nowhere: No such file or directory; the map has no ground" in caplog.text


def test_a_folder_without_tiles_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"web.tiles.* has no tiles; allowed: a folder of"):
        Tiles(tmp_path)
    with pytest.raises(InputError, match="No such file"):
        Tiles(tmp_path / "nowhere")
