"""What a GET gets: files of the page for everyone, documents for users."""

from tests.gateway.mqtt.harness import in_loop
from tests.gateway.web.harness import basic, get, serving_web

from roamcast.gateway.access import GUESSES_AT_ONCE
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
